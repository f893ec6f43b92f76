// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Files are read with pread(2), not mapped: a file that shrinks while it is
// read is then an error and not a SIGBUS.

#include "files/open_file.h"

#include "base/log.h"

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <fcntl.h>
#include <mutex>
#include <set>
#include <sys/stat.h>
#include <unistd.h>

using namespace ddphook;

/// Checks a file whose name the runtime chose.
static Status checkOwner(const std::string &path, const struct stat &attributes,
                         bool isWritten) {
  struct stat directory;
  const uid_t owner = attributes.st_uid;
  if (owner != ::geteuid() && owner != 0 &&
      (::stat(directoryOf(path).c_str(), &directory) != 0 ||
       owner != directory.st_uid))
    return error(DDPHOOK_IO_ERROR, "cannot open '%s': it belongs to user %ld",
                 path.c_str(), static_cast<long>(owner));
  // A write would also change the file under its other name.
  if (isWritten && attributes.st_nlink > 1)
    return error(DDPHOOK_IO_ERROR, "cannot open '%s': it is a hard link",
                 path.c_str());
  return Status::ok();
}

Status OpenFile::open(const std::string &name, int flags, NamedBy namedBy) {
  path = name;
  const bool isOurs = namedBy == NamedBy::Runtime;
  const bool isWritten = (flags & O_ACCMODE) != O_RDONLY;
  file = FileDescriptor::opened([&] {
    return ::open(path.c_str(),
                  flags | O_CLOEXEC | O_NONBLOCK | (isOurs ? O_NOFOLLOW : 0),
                  0666);
  });
  missing = !file.isValid() && errno == ENOENT;
  if (!file.isValid() && errno == ELOOP && isOurs)
    return error(DDPHOOK_IO_ERROR, "cannot open '%s': it is a symbolic link",
                 path.c_str());
  if (!file.isValid())
    return systemError(errno, "cannot open '%s'", path.c_str());
  struct stat attributes;
  if (::fstat(file.get(), &attributes) != 0)
    return systemError(errno, "cannot read '%s'", path.c_str());
  if (!S_ISREG(attributes.st_mode))
    return error(DDPHOOK_IO_ERROR, "cannot %s '%s': not a regular file",
                 isWritten ? "write" : "read", path.c_str());
  bytes = static_cast<uint64_t>(attributes.st_size);
  return isOurs ? checkOwner(path, attributes, isWritten) : Status::ok();
}

Status OpenFile::read(void *data, uint64_t count, uint64_t offset) const {
  char *out = static_cast<char *>(data);
  while (count > 0) {
    const ssize_t got =
        ::pread(file.get(), out, count, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return systemError(errno, "cannot read '%s'", path.c_str());
    if (got == 0)
      return dataLoss(
          concat("'", path, "': file ended early, at byte ", offset));
    out += got;
    offset += static_cast<uint64_t>(got);
    count -= static_cast<uint64_t>(got);
  }
  return Status::ok();
}

std::string ddphook::directoryOf(const std::string &path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos)
    return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string ddphook::describeOtherWriters(const std::string &directory) {
  char resolved[PATH_MAX];
  if (!::realpath(directory.c_str(), resolved))
    return {};
  for (std::string path = resolved;; path = directoryOf(path)) {
    struct stat attributes;
    if (::lstat(path.c_str(), &attributes) != 0)
      return {};
    if (attributes.st_uid != ::geteuid() && attributes.st_uid != 0)
      return concat("'", path, "' belongs to user ", attributes.st_uid);
    if ((attributes.st_mode & S_IWOTH) && !(attributes.st_mode & S_ISVTX))
      return "every user can write to '" + path + "'";
    if (path == "/")
      return {};
  }
}

void ddphook::warnOfOtherWriters(const std::string &directory,
                                 const char *what) {
  static std::mutex mutex;
  static std::set<std::string> seen;
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (!seen.insert(directory).second)
      return;
  }
  const std::string writers = describeOtherWriters(directory);
  if (!writers.empty())
    log(LogLevel::Warn, std::string("others can replace ") + what + " in '" +
                            directory + "': " + writers);
}
