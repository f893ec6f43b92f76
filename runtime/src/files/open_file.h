// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Opens every file that the runtime has not just created itself, because
// another user may have replaced it with a pipe, a device or a link.
// docs/SECURITY.md says how each kind of file is opened.

#pragma once

#include "base/file_descriptor.h"
#include "base/status.h"

#include <cstdint>
#include <string>

namespace ddphook {

/// Says who chose a file's name.
enum class NamedBy {
  /// A user asked for exactly this file to be read. It may be a link and may
  /// have any owner.
  User,
  /// The runtime derived it from a pattern, so others know it in advance. The
  /// last component must not be a link. The file must be owned by the user, by
  /// root or by the owner of the directory. If it is opened for writing, it
  /// must have no second name.
  Runtime
};

/// An open regular file.
class OpenFile {
public:
  /// Opens `path` with `flags` of open(2), which must not include O_TRUNC.
  /// Never waits for the other end of a pipe. Messages name `path`. May be
  /// called once.
  Status open(const std::string &path, int flags, NamedBy namedBy);

  /// True if open() failed because there is no such file.
  bool isMissing() const { return missing; }
  int descriptor() const { return file.get(); }
  /// The size in bytes when the file was opened.
  uint64_t size() const { return bytes; }
  /// Reads exactly `count` bytes; DATA_LOSS if the file ends earlier.
  Status read(void *data, uint64_t count, uint64_t offset) const;

private:
  std::string path;
  FileDescriptor file;
  bool missing = false;
  uint64_t bytes = 0;
};

std::string directoryOf(const std::string &path);

/// Returns who else can replace files in `directory`, or an empty text if
/// nobody can. Others can if it or a directory above it has another owner, or
/// is writable for every user and not sticky. Members of a directory's group
/// are trusted.
std::string describeOtherWriters(const std::string &directory);

/// Logs the same, once per directory. `what` names the files.
void warnOfOtherWriters(const std::string &directory, const char *what);

} // namespace ddphook
