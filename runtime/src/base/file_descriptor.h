//===- file_descriptor.h - not for children of a fork -----------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Peers learn of a process's death, and of a connection's end, when the kernel
// closes its last descriptor. A child that was forked meanwhile, as PyTorch's
// data loaders fork theirs, has one of each too, and may live for long. So in a
// child all of these descriptors are others, of /dev/null: its files never get
// their numbers, which whoever owns them here may still close there.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_BASE_FILE_DESCRIPTOR_H
#define DDPHOOK_RUNTIME_SRC_BASE_FILE_DESCRIPTOR_H

#include <atomic>

namespace ddphook {

/// Grows in every child of a process that watches forks: what a process had
/// made before it forked is not for its child.
inline std::atomic<unsigned> forkCount{0};

/// Owns a file descriptor, in the process that has opened it.
class FileDescriptor {
public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd);
  /// Owns what `open` returns. No child is forked in between.
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

  /// Makes this process watch forks, as the first descriptor does; false: there
  /// is no memory for that.
  static bool watchForks();

  int get() const { return fd; }
  bool isValid() const { return fd >= 0; }
  /// Gives it up; a child of later has it, too.
  int release();
  void reset();

private:
  /// While it lives, no other thread forks, nor changes the list.
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
  /// The list of all valid ones of this process.
  FileDescriptor *previous = nullptr, *next = nullptr;
};

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_BASE_FILE_DESCRIPTOR_H
