// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Peers learn of a process's death, and of a connection's end, when the kernel
// closes the last descriptor. A forked child, such as PyTorch's data loaders,
// has a copy of each and may live long. So a child replaces these descriptors
// with ones of /dev/null. They keep their numbers, so that the owner can still
// close them and no file of the child gets the same number.

#pragma once

#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

namespace ddphook {

/// Increases in every forked child of a process that watches forks. An object
/// made before a fork must not be used in the child.
inline std::atomic<unsigned> forkCount{0};

// In a program whose standard descriptors are closed, such as a daemon, the
// next files and sockets get their numbers and then receive whatever the
// program or a library prints. So the runtime keeps none of the three.

/// Moves a newly opened descriptor to a number above 2 and returns it. If no
/// number is free, closes it and returns -1; errno says why.
inline int aboveStandard(int fd) {
  if (fd < 0 || fd > STDERR_FILENO)
    return fd;
  const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int reason = errno;
  ::close(fd);
  errno = reason;
  return moved;
}

/// Owns a file descriptor in the process that opened it.
class FileDescriptor {
public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd);
  /// Owns the descriptor that `open` returns. No child is forked in between.
  template <class OpenT>
  static FileDescriptor opened(const OpenT &open) {
    FileDescriptor result;
    {
      NoFork noFork;
      result.link(open());
    }
    return result;
  }
  FileDescriptor(FileDescriptor &&other) noexcept;
  FileDescriptor &operator=(FileDescriptor &&other) noexcept;
  ~FileDescriptor() { reset(); }

  /// Makes this process watch forks, as the first descriptor does. Returns
  /// false if there is no memory for that.
  static bool watchForks();

  int get() const { return fd; }
  bool isValid() const { return fd >= 0; }
  /// Gives up ownership; children forked later then inherit the descriptor.
  int release();
  void reset();

private:
  /// While it lives, no other thread forks or changes the list.
  class NoFork {
  public:
    NoFork();
    ~NoFork();
    NoFork(const NoFork &) = delete;
    NoFork &operator=(const NoFork &) = delete;
  };
  friend class Descriptors;

  void link(int newFd);
  int unlink();
  void close();

  int fd = -1;
  /// The list of all valid descriptors of this process.
  FileDescriptor *previous = nullptr, *next = nullptr;
};

} // namespace ddphook
