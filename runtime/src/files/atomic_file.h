// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes a file that appears under its name only when all of it is on disk.

#pragma once

#include "base/file_descriptor.h"
#include "base/status.h"

#include <cstdint>
#include <string>

namespace ddphook {

/// One file to be written. Its bytes gather in a file without a name, which
/// vanishes when the process ends, however that happens. If the file system has
/// no such files, they gather in partialPath() in the same directory.
class AtomicFile {
public:
  explicit AtomicFile(std::string path) : path(std::move(path)) {}
  /// Discards the file if it was not committed.
  ~AtomicFile();

  /// `avoidNameless`: for tests of file systems without nameless files.
  Status open(bool avoidNameless = false);
  Status write(const void *data, uint64_t size);
  /// Overwrites bytes already written; the next write() still appends.
  Status overwrite(uint64_t offset, const void *data, uint64_t size);
  /// Makes the file appear, replacing an older regular file. If `isDurable`, it
  /// survives a power failure from then on.
  Status commit(bool isDurable = true);

  /// Remains open after commit().
  int descriptor() const { return file.get(); }

private:
  Status failure(const char *what) const;
  Status takeName();

  const std::string path;
  std::string partial; ///< Empty while the file has no name.
  FileDescriptor file;
  uint64_t bytes = 0; ///< The bytes written so far.
};

/// Writes all bytes at an offset of an open file. False: errno says why.
bool writeAt(int file, uint64_t offset, const void *data, uint64_t size);

/// Makes the names in the directory of `path` survive a power failure.
Status syncDirectory(const std::string &path);

/// In an unfinished file's name, precedes the process's number.
constexpr char partialSuffix[] = ".partial-";

/// Returns the name that process `process` may give to an unfinished `path`.
std::string partialPath(const std::string &path, int64_t process);

} // namespace ddphook
