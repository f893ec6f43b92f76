// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Uses O_TMPFILE and linkat(2), or a named file and rename(2).

#include "files/atomic_file.h"

#include "base/write_signals.h"
#include "files/open_file.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace ddphook;

std::string ddphook::partialPath(const std::string &path, int64_t process) {
  return concat(path, partialSuffix, process);
}

/// Returns the path by which linkat() finds a file without a name.
static std::string descriptorPath(int file) {
  return "/proc/self/fd/" + std::to_string(file);
}

bool ddphook::writeAt(int file, uint64_t offset, const void *data,
                      uint64_t size) {
  const char *in = static_cast<const char *>(data);
  while (size > 0) {
    ssize_t put = ::pwrite(file, in, size, static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR)
      continue;
    if (put < 0)
      return false;
    in += put;
    offset += static_cast<uint64_t>(put);
    size -= static_cast<uint64_t>(put);
  }
  return true;
}

AtomicFile::~AtomicFile() {
  if (!partial.empty())
    ::unlink(partial.c_str());
}

/// Returns the failure of the preceding system call.
Status AtomicFile::failure(const char *what) const {
  return systemError(errno, "cannot %s '%s'", what, path.c_str());
}

Status AtomicFile::open(bool avoidNameless) {
  struct stat attributes;
  // Renaming over a device or a pipe would destroy it.
  if (::stat(path.c_str(), &attributes) == 0 && !S_ISREG(attributes.st_mode))
    return Status(DDPHOOK_IO_ERROR,
                  "cannot create '" + path + "': not a regular file");
  if (!avoidNameless) {
    file = FileDescriptor::opened([this] {
      return ::open(directoryOf(path).c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC,
                    0666);
    });
    if (file.isValid() &&
        ::access(descriptorPath(file.get()).c_str(), F_OK) == 0)
      return Status::ok();
  }
  std::string name = partialPath(path, ::getpid());
  // A process with the same number may have been killed, or another user may
  // have made a pipe or a link.
  ::unlink(name.c_str());
  file = FileDescriptor::opened([&name] {
    return ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  });
  if (!file.isValid())
    return failure("create");
  partial = std::move(name);
  return Status::ok();
}

Status AtomicFile::write(const void *data, uint64_t size) {
  DDPHOOK_TRY(overwrite(bytes, data, size));
  bytes += size;
  return Status::ok();
}

Status AtomicFile::overwrite(uint64_t offset, const void *data, uint64_t size) {
  const NoWriteSignals noSignals;
  return writeAt(file.get(), offset, data, size) ? Status::ok()
                                                 : failure("write");
}

/// Links the nameless file to the final name if that is free, otherwise to the
/// partial one: no system call replaces an existing name with a link.
Status AtomicFile::takeName() {
  std::string descriptor = descriptorPath(file.get());
  auto link = [&](const std::string &name) {
    return ::linkat(AT_FDCWD, descriptor.c_str(), AT_FDCWD, name.c_str(),
                    AT_SYMLINK_FOLLOW) == 0;
  };
  if (link(path))
    return Status::ok();
  std::string name = partialPath(path, ::getpid());
  // A process with the same number may have been killed right here.
  ::unlink(name.c_str());
  if (!link(name))
    return failure("create");
  partial = std::move(name);
  return Status::ok();
}

Status AtomicFile::commit(bool isDurable) {
  if (isDurable && ::fsync(file.get()) != 0)
    return failure("write");
  if (partial.empty())
    DDPHOOK_TRY(takeName());
  if (!partial.empty()) {
    if (::rename(partial.c_str(), path.c_str()) != 0)
      return failure("create");
    partial.clear();
  }
  return isDurable ? syncDirectory(path) : Status::ok();
}

Status ddphook::syncDirectory(const std::string &path) {
  const auto directory = FileDescriptor::opened([&path] {
    return ::open(directoryOf(path).c_str(),
                  O_RDONLY | O_CLOEXEC | O_DIRECTORY);
  });
  // A directory may be writable but not readable, and some file systems refuse
  // fsync on directories. Neither makes the file less complete.
  const bool isSynced = directory.isValid()
                            ? ::fsync(directory.get()) == 0 || errno == EINVAL
                            : errno == EACCES;
  return isSynced ? Status::ok()
                  : systemError(errno, "cannot write the directory of '%s'",
                                path.c_str());
}
