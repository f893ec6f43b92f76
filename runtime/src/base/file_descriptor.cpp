// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The list is intrusive and allocates no memory, so nothing here can fail.

#include "base/file_descriptor.h"

#include <mutex>
#include <pthread.h>
#include <utility>

namespace ddphook {

class Descriptors {
public:
  static std::mutex mutex;
  static FileDescriptor *first;

  /// Registers the fork handlers. A child calls only functions that are
  /// async-signal-safe, as it must where other threads have held locks.
  static bool watchForks() {
    static const int registered =
        ::pthread_atfork([] { mutex.lock(); }, [] { mutex.unlock(); },
                         [] {
                           ++forkCount;
                           replaceAll();
                           mutex.unlock();
                         });
    return registered == 0;
  }

private:
  static void replaceAll() {
    const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    for (FileDescriptor *each = first; each; each = each->next) {
      // If the process can open no file, at least free the descriptor.
      if (nothing < 0)
        ::close(each->fd);
      else
        ::dup3(nothing, each->fd, O_CLOEXEC);
    }
    if (nothing >= 0)
      ::close(nothing);
  }
};

std::mutex Descriptors::mutex;
FileDescriptor *Descriptors::first = nullptr;

bool FileDescriptor::watchForks() { return Descriptors::watchForks(); }

FileDescriptor::NoFork::NoFork() {
  // If there is no memory, a child keeps its descriptors.
  (void)watchForks();
  Descriptors::mutex.lock();
}

FileDescriptor::NoFork::~NoFork() { Descriptors::mutex.unlock(); }

void FileDescriptor::link(int newFd) {
  fd = aboveStandard(newFd);
  if (fd < 0)
    return;
  next = std::exchange(Descriptors::first, this);
  if (next)
    next->previous = this;
}

int FileDescriptor::unlink() {
  if (fd >= 0) {
    (previous ? previous->next : Descriptors::first) = next;
    if (next)
      next->previous = previous;
    previous = next = nullptr;
  }
  return std::exchange(fd, -1);
}

void FileDescriptor::close() {
  const int old = unlink();
  if (old >= 0)
    ::close(old);
}

FileDescriptor::FileDescriptor(int fd) {
  NoFork noFork;
  link(fd);
}

FileDescriptor::FileDescriptor(FileDescriptor &&other) noexcept {
  NoFork noFork;
  link(other.unlink());
}

FileDescriptor &FileDescriptor::operator=(FileDescriptor &&other) noexcept {
  NoFork noFork;
  if (this != &other) {
    close();
    link(other.unlink());
  }
  return *this;
}

int FileDescriptor::release() {
  NoFork noFork;
  return unlink();
}

void FileDescriptor::reset() {
  NoFork noFork;
  close();
}

} // namespace ddphook
