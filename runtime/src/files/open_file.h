//===- open_file.h - files that others may have made ------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Opens every file that the runtime has not just created itself. Somebody else
// may have put a pipe, a device or a link in its place. docs/SECURITY.md says
// which files are opened how.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_FILES_OPEN_FILE_H
#define DDPHOOK_RUNTIME_SRC_FILES_OPEN_FILE_H

#include "base/status.h"

#include <cstdint>
#include <string>

namespace ddphook {

/// Who has chosen a file's name.
enum class NamedBy {
  /// A person, who names this very file to have it read. It may be a link, and
  /// it may belong to anybody.
  User,
  /// The runtime, from a pattern, so that others know the name beforehand. The
  /// last component must not be a link, and the file must belong to the user,
  /// to root, or to the owner of the directory, and have no second name if it
  /// is opened for writing.
  Runtime
};

/// A regular file.
class OpenFile {
public:
  OpenFile() = default;
  ~OpenFile();
  OpenFile(const OpenFile &) = delete;
  OpenFile &operator=(const OpenFile &) = delete;

  /// Opens it with these flags of open(2), without O_TRUNC. Never waits for the
  /// other end of a pipe. Messages name `path`. To be called once.
  Status open(const std::string &path, int flags, NamedBy namedBy);

  int descriptor() const { return file; }
  /// Its bytes when it was opened.
  uint64_t size() const { return bytes; }
  /// Reads exactly so many bytes; DATA_LOSS if the file has ended before.
  Status read(void *data, uint64_t count, uint64_t offset) const;

private:
  std::string path;
  int file = -1;
  uint64_t bytes = 0;
};

/// The directory that `path` lies in.
std::string directoryOf(const std::string &path);

/// Says who else can replace the files in `directory`: it, or a directory
/// above it, belongs to another user, or every user can write to it and it is
/// not sticky. Empty if nobody can. Members of a directory's group are trusted.
std::string describeOtherWriters(const std::string &directory);

/// Logs that once for each directory of this process: `what` lies there.
void warnOfOtherWriters(const std::string &directory, const char *what);

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_FILES_OPEN_FILE_H
