//===- file_size_signal.h - limits on files are errors ----------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A file that would grow beyond RLIMIT_FSIZE (`ulimit -f`) costs its writer a
// SIGXFSZ, which ends the process by default.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_BASE_FILE_SIZE_SIGNAL_H
#define DDPHOOK_RUNTIME_SRC_BASE_FILE_SIZE_SIGNAL_H

#include <cerrno>
#include <ctime>
#include <signal.h>

namespace ddphook {

/// While this lives, system calls of this thread that exceed the limit fail
/// with EFBIG and do nothing else. The host program's handler, mask and pending
/// signals stay as they are, and so does errno.
class NoFileSizeSignal {
public:
  NoFileSizeSignal() {
    sigemptyset(&signals);
    sigaddset(&signals, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &signals, &saved);
    sigset_t pending;
    wasPending = sigismember(&saved, SIGXFSZ) && sigpending(&pending) == 0 &&
                 sigismember(&pending, SIGXFSZ);
  }
  ~NoFileSizeSignal() {
    const int failure = errno;
    const timespec noTime = {};
    if (!wasPending)
      sigtimedwait(&signals, nullptr, &noTime);
    pthread_sigmask(SIG_SETMASK, &saved, nullptr);
    errno = failure;
  }
  NoFileSizeSignal(const NoFileSizeSignal &) = delete;
  NoFileSizeSignal &operator=(const NoFileSizeSignal &) = delete;

private:
  sigset_t signals, saved;
  bool wasPending;
};

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_BASE_FILE_SIZE_SIGNAL_H
