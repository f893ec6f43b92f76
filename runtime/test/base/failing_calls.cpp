// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See failing_calls.h. The dynamic linker prefers the program's functions to
// the C library's, in which calls of its own stay as they are.

#include "base/failing_calls.h"

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <new>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace ddphook;
using namespace ddphook::test;

static std::atomic<bool> isCounting{false}, isSent{false};
static CallKind countedKind;
static const char *countedFunction = "";
static long firstFailure, failureCount;
static std::atomic<long> calls{0};
static std::atomic<const char *> failedName{nullptr};
static std::atomic<int> failedError{0};

/// Whether this call fails; errno is then `error`.
static bool fails(CallKind kind, const char *name, int error) {
  if (!isCounting.load() || kind != countedKind ||
      (*countedFunction && std::strcmp(name, countedFunction) != 0))
    return false;
  const long number = calls++;
  if (number < firstFailure || number - firstFailure >= failureCount)
    return false;
  const char *first = nullptr;
  if (failedName.compare_exchange_strong(first, name))
    failedError = error;
  else if (kind == CallKind::System && first != name)
    return false;
  errno = error;
  return true;
}

void test::failCalls(CallKind kind, long first, long length,
                     const char *function) {
  countedKind = kind;
  countedFunction = function;
  firstFailure = first;
  failureCount = length;
  calls = 0;
  isCounting = true;
}

void test::allowCalls() { isCounting = false; }

long test::countedCalls() { return calls; }

bool test::hasSent() { return isSent; }

const char *test::failedCall() {
  const char *name = failedName;
  return name ? name : "";
}

const char *test::failedReason() { return std::strerror(failedError); }

/// The C library's function.
template <typename Function>
static Function *find(Function *, const char *name) {
  return reinterpret_cast<Function *>(::dlsym(RTLD_NEXT, name));
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

#ifdef DDPHOOK_TEST_SANITIZED
// A sanitizer has its own malloc().
void *operator new(size_t size) {
  void *memory = fails(CallKind::Allocation, "new", ENOMEM)
                     ? nullptr
                     : std::malloc(size ? size : 1);
  if (!memory)
    throw std::bad_alloc();
  return memory;
}
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, size_t) noexcept { std::free(memory); }
#else
extern "C" {
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

void *malloc(size_t size) {
  return fails(CallKind::Allocation, "malloc", ENOMEM) ? nullptr
                                                       : __libc_malloc(size);
}
void *calloc(size_t count, size_t size) {
  return fails(CallKind::Allocation, "calloc", ENOMEM)
             ? nullptr
             : __libc_calloc(count, size);
}
void *realloc(void *memory, size_t size) {
  return fails(CallKind::Allocation, "realloc", ENOMEM)
             ? nullptr
             : __libc_realloc(memory, size);
}
void *aligned_alloc(size_t alignment, size_t size) {
  return fails(CallKind::Allocation, "aligned_alloc", ENOMEM)
             ? nullptr
             : __libc_memalign(alignment, size);
}
}
#endif

//===----------------------------------------------------------------------===//
// Threads and system calls
//===----------------------------------------------------------------------===//

/// A function of the C library that returns `failure`, or fails so.
#define FUNCTION(kind, error, failure, type, name, parameters, arguments)      \
  extern "C" type name parameters {                                            \
    static const auto original = find(&::name, #name);                         \
    if (fails(CallKind::kind, #name, error))                                   \
      return failure;                                                          \
    return original arguments;                                                 \
  }
#define SYSTEM(error, type, name, parameters, arguments)                       \
  FUNCTION(System, error, -1, type, name, parameters, arguments)

FUNCTION(Thread, EAGAIN, EAGAIN, int, pthread_create,
         (pthread_t *__restrict thread, const pthread_attr_t *__restrict attr,
          void *(*start)(void *), void *__restrict argument),
         (thread, attr, start, argument))

SYSTEM(EMFILE, int, socket, (int family, int type, int protocol) noexcept,
       (family, type, protocol))
SYSTEM(EACCES, int, bind,
       (int fd, const sockaddr *address, socklen_t size) noexcept,
       (fd, address, size))
SYSTEM(ENOBUFS, int, listen, (int fd, int backlog) noexcept, (fd, backlog))
SYSTEM(ENETUNREACH, int, connect,
       (int fd, const sockaddr *address, socklen_t size), (fd, address, size))
SYSTEM(EMFILE, int, accept4,
       (int fd, sockaddr *__restrict address, socklen_t *__restrict size,
        int flags),
       (fd, address, size, flags))
SYSTEM(ENOBUFS, int, setsockopt,
       (int fd, int level, int name, const void *value,
        socklen_t size) noexcept,
       (fd, level, name, value, size))
SYSTEM(ENOBUFS, int, getsockname,
       (int fd, sockaddr *__restrict address,
        socklen_t *__restrict size) noexcept,
       (fd, address, size))
SYSTEM(ENOBUFS, int, getpeername,
       (int fd, sockaddr *__restrict address,
        socklen_t *__restrict size) noexcept,
       (fd, address, size))
SYSTEM(ENOBUFS, ssize_t, sendmsg, (int fd, const msghdr *message, int flags),
       (fd, message, flags))
SYSTEM(ENOMEM, ssize_t, recv, (int fd, void *data, size_t size, int flags),
       (fd, data, size, flags))
SYSTEM(ENOMEM, int, poll, (pollfd * entries, nfds_t count, int patience),
       (entries, count, patience))
SYSTEM(EMFILE, int, eventfd, (unsigned count, int flags) noexcept,
       (count, flags))
SYSTEM(EMFILE, int, memfd_create, (const char *name, unsigned flags) noexcept,
       (name, flags))
SYSTEM(ENOSPC, int, ftruncate, (int fd, off_t size) noexcept, (fd, size))
FUNCTION(System, ENOSPC, ENOSPC, int, posix_fallocate,
         (int fd, off_t begin, off_t size), (fd, begin, size))
FUNCTION(System, ENOMEM, MAP_FAILED, void *, mmap,
         (void *address, size_t size, int protection, int flags, int fd,
          off_t offset) noexcept,
         (address, size, protection, flags, fd, offset))
SYSTEM(ENOMEM, int, madvise, (void *address, size_t size, int advice) noexcept,
       (address, size, advice))
SYSTEM(ENOSYS, ssize_t, getrandom, (void *data, size_t size, unsigned flags),
       (data, size, flags))
SYSTEM(EIO, ssize_t, read, (int fd, void *data, size_t size), (fd, data, size))
SYSTEM(EIO, ssize_t, pread, (int fd, void *data, size_t size, off_t offset),
       (fd, data, size, offset))
SYSTEM(ENOSPC, ssize_t, write, (int fd, const void *data, size_t size),
       (fd, data, size))
SYSTEM(ENOSPC, ssize_t, pwrite,
       (int fd, const void *data, size_t size, off_t offset),
       (fd, data, size, offset))
SYSTEM(EIO, int, fsync, (int fd), (fd))
SYSTEM(EIO, int, rename, (const char *from, const char *to) noexcept,
       (from, to))
SYSTEM(EIO, int, linkat,
       (int from, const char *name, int to, const char *newName,
        int flags) noexcept,
       (from, name, to, newName, flags))
SYSTEM(EIO, int, unlink, (const char *path) noexcept, (path))
SYSTEM(EIO, int, access, (const char *path, int mode) noexcept, (path, mode))
SYSTEM(EIO, int, stat,
       (const char *__restrict path, struct stat *__restrict result) noexcept,
       (path, result))
SYSTEM(EIO, int, fstat, (int fd, struct stat *result) noexcept, (fd, result))
SYSTEM(EIO, ssize_t, readlink,
       (const char *__restrict path, char *__restrict target,
        size_t size) noexcept,
       (path, target, size))
FUNCTION(System, EMFILE, nullptr, DIR *, opendir, (const char *path), (path))
FUNCTION(System, ENOMEM, EAI_MEMORY, int, getaddrinfo,
         (const char *__restrict node, const char *__restrict service,
          const addrinfo *__restrict hints, addrinfo **__restrict result),
         (node, service, hints, result))
SYSTEM(ENOMEM, int, getifaddrs, (ifaddrs * *list) noexcept, (list))

extern "C" ssize_t send(int fd, const void *data, size_t size, int flags) {
  static const auto original = find(&::send, "send");
  if (fails(CallKind::System, "send", ENOBUFS))
    return -1;
  if (isCounting)
    isSent = true;
  return original(fd, data, size, flags);
}

extern "C" int open(const char *path, int flags, ...) {
  static const auto original = find(&::open, "open");
  va_list more;
  va_start(more, flags);
  const mode_t mode = va_arg(more, mode_t);
  va_end(more);
  return fails(CallKind::System, "open", EMFILE) ? -1
                                                 : original(path, flags, mode);
}

extern "C" int fcntl(int fd, int command, ...) {
  static const auto original = find(&::fcntl, "fcntl");
  va_list more;
  va_start(more, command);
  const long argument = va_arg(more, long);
  va_end(more);
  return fails(CallKind::System, "fcntl", EMFILE)
             ? -1
             : original(fd, command, argument);
}

/// Only pidfd_open(), which the C library may lack: the C++ library waits with
/// another one.
extern "C" long syscall(long number, ...) noexcept {
  static const auto original = find(&::syscall, "syscall");
  va_list more;
  va_start(more, number);
  long arguments[6];
  for (long &argument : arguments)
    argument = va_arg(more, long);
  va_end(more);
  return number == SYS_pidfd_open &&
                 fails(CallKind::System, "pidfd_open", EMFILE)
             ? -1
             : original(number, arguments[0], arguments[1], arguments[2],
                        arguments[3], arguments[4], arguments[5]);
}
