/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Hidden definitions of the functions that glibc added after 2.28, for code
 * that was compiled with a newer glibc, and of two from glibc's
 * libc_nonshared.a.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

extern void *__dso_handle;
int __cxa_atexit(void (*function)(void *), void *argument, void *library);
int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *);

int atexit(void (*function)(void)) {
  return __cxa_atexit((void (*)(void *))function, NULL, &__dso_handle);
}

int pthread_atfork(void (*prepare)(void), void (*parent)(void),
                   void (*child)(void)) {
  return __register_atfork(prepare, parent, child, &__dso_handle);
}

/* 2.30 */
pid_t gettid(void) { return (pid_t)syscall(SYS_gettid); }

typedef int (*ClockWait)(pthread_cond_t *, pthread_mutex_t *, clockid_t,
                         const struct timespec *);
static ClockWait glibcs;
__attribute__((constructor)) static void findClockWait(void) {
  glibcs = (ClockWait)dlsym(RTLD_DEFAULT, "pthread_cond_clockwait");
}

/* Calls glibc's own function if there is one. Otherwise waits for at most a
 * second on the realtime clock, which conditions have by default; the caller's
 * loop then looks at its clock again. */
int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                           clockid_t clock, const struct timespec *deadline) {
  if (glibcs)
    return glibcs(condition, mutex, clock, deadline);
  const int64_t second = 1000000000;
  struct timespec now, until;
  clock_gettime(clock, &now);
  int64_t left = (deadline->tv_sec - now.tv_sec) * second +
                 (deadline->tv_nsec - now.tv_nsec);
  if (left <= 0)
    return ETIMEDOUT;
  clock_gettime(CLOCK_REALTIME, &until);
  int64_t end = until.tv_nsec + (left < second ? left : second);
  until.tv_sec += end / second;
  until.tv_nsec = end % second;
  int result = pthread_cond_timedwait(condition, mutex, &until);
  return result == ETIMEDOUT && left >= second ? 0 : result;
}

/* 2.32. Not only one thread: reference counts are always atomic. */
char __libc_single_threaded = 0;

/* 2.33. On 64-bit systems the kernel's struct is glibc's. */
int fstatat(int directory, const char *path, struct stat *result, int flags) {
  return (int)syscall(SYS_newfstatat, directory, path, result, flags);
}
int stat(const char *path, struct stat *result) {
  return fstatat(AT_FDCWD, path, result, 0);
}
int lstat(const char *path, struct stat *result) {
  return fstatat(AT_FDCWD, path, result, AT_SYMLINK_NOFOLLOW);
}
int fstat(int file, struct stat *result) {
  return (int)syscall(SYS_fstat, file, result);
}
int stat64(const char *path, struct stat64 *result) {
  return stat(path, (struct stat *)result);
}
int lstat64(const char *path, struct stat64 *result) {
  return lstat(path, (struct stat *)result);
}
int fstat64(int file, struct stat64 *result) {
  return fstat(file, (struct stat *)result);
}
int mknod(const char *path, mode_t mode, dev_t device) {
  return (int)syscall(SYS_mknodat, AT_FDCWD, path, mode, (unsigned)device);
}
/* Its fields are `mallinfo`'s, but wider. */
typedef struct {
  size_t fields[10];
} MallocInfo;
MallocInfo wideMallocInfo(void) __asm__("mallinfo2");
struct mallinfo narrowMallocInfo(void) __asm__("mallinfo");
MallocInfo wideMallocInfo(void) {
  const struct mallinfo info = narrowMallocInfo();
  MallocInfo result;
  for (int i = 0; i < 10; ++i)
    result.fields[i] = (unsigned)(&info.arena)[i];
  return result;
}

/* 2.36 */
uint32_t arc4random(void) {
  uint32_t result = 0;
  while (getrandom(&result, sizeof(result), 0) != sizeof(result))
    ;
  return result;
}

/* 2.38: strtol and others also accept binary numbers, which nothing here reads.
 */
#define SAME_AS(name, type)                                                    \
  type old_##name(const char *, char **, int) __asm__(#name);                  \
  type new_##name(const char *text, char **end,                                \
                  int base) __asm__("__isoc23_" #name);                        \
  type new_##name(const char *text, char **end, int base) {                    \
    return old_##name(text, end, base);                                        \
  }
SAME_AS(strtol, long)
SAME_AS(strtoul, unsigned long)
SAME_AS(strtoll, long long)
SAME_AS(strtoull, unsigned long long)
int old_vsscanf(const char *, const char *, va_list) __asm__("vsscanf");
int new_sscanf(const char *, const char *, ...) __asm__("__isoc23_sscanf");
int new_sscanf(const char *text, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int result = old_vsscanf(text, format, arguments);
  va_end(arguments);
  return result;
}
