// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The functions of the C library that a save calls, with faults.

#include "checkpoint/checkpoint_faults.h"

#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace ddphook::test;

namespace ddphook::test {
thread_local Fault *armed = nullptr;
bool hasNoLocks = false;
thread_local std::string *calls = nullptr;
} // namespace ddphook::test

namespace {

void record(const std::string &what) {
  if (calls)
    *calls += what + "\n";
}

template <typename Function>
int callWithFault(Function &&call, bool replacesManifest = false) {
  Fault *fault = armed;
  if (fault && fault->isOfManifest && !replacesManifest)
    fault = nullptr;
  if (fault && fault->number-- != 0 &&
      !(fault->isLasting && fault->hasHappened()))
    fault = nullptr;
  auto wait = [&](Fault::Kind kind) {
    char byte = 0;
    if (!fault || fault->kind != kind)
      return;
    if (fault->forks && ::fork() == 0) {
      ::alarm(600);
      ::_exit(::read(fault->released, &byte, 1) == 1 ? 0 : 1);
    }
    if ((::write(fault->arrived, &byte, 1) != 1 ||
         ::read(fault->released, &byte, 1) != 1))
      ::_exit(99);
  };
  wait(Fault::Kind::StallBefore);
  long result = -1;
  if (!fault || fault->kind != Fault::Kind::FailBefore)
    result = call();
  int error = errno;
  wait(Fault::Kind::StallAfter);
  if (fault && (fault->kind == Fault::Kind::FailBefore ||
                fault->kind == Fault::Kind::FailAfter)) {
    result = -1;
    error = EIO;
  }
  errno = error;
  return static_cast<int>(result);
}

} // namespace

extern "C" {
int fsync(int file) {
  struct stat attributes;
  record(::fstat(file, &attributes) == 0 && S_ISDIR(attributes.st_mode)
             ? "sync the directory"
             : "sync a file");
  return callWithFault([&] { return ::syscall(SYS_fsync, file); });
}
int flock(int file, int operation) noexcept {
  return callWithFault([&]() -> long {
    if (!hasNoLocks)
      return ::syscall(SYS_flock, file, operation);
    errno = ENOLCK;
    return -1;
  });
}
int rename(const char *from, const char *to) noexcept {
  const std::string name = std::filesystem::path(to).filename();
  record(name.find(".pending-") == std::string::npos ? "replace " + name
                                                     : "name a file");
  return callWithFault(
      [&] { return ::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0); },
      name == "s.manifest.json");
}
int linkat(int fromDirectory, const char *from, int toDirectory, const char *to,
           int flags) noexcept {
  record("name a file");
  return callWithFault([&] {
    return ::syscall(SYS_linkat, fromDirectory, from, toDirectory, to, flags);
  });
}
int unlink(const char *path) noexcept {
  record("remove " + std::filesystem::path(path).filename().string());
  return callWithFault(
      [&] { return ::syscall(SYS_unlinkat, AT_FDCWD, path, 0); });
}
}
