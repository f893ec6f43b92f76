//===- write_signals.h - failed writes are errors ---------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Two failures of a write also cost the writer a signal, which ends the process
// by default: a file that would grow beyond RLIMIT_FSIZE (`ulimit -f`) raises
// SIGXFSZ, and a pipe that nobody reads SIGPIPE.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_BASE_WRITE_SIGNALS_H
#define DDPHOOK_RUNTIME_SRC_BASE_WRITE_SIGNALS_H

#include <cerrno>
#include <ctime>
#include <signal.h>

namespace ddphook {

/// While this lives, such system calls of this thread fail with EFBIG or EPIPE
/// and do nothing else. The host program's handlers, mask and pending signals
/// stay as they are, and so does errno.
class NoWriteSignals {
public:
  NoWriteSignals() {
    sigemptyset(&raised);
    for (int signal : {SIGXFSZ, SIGPIPE})
      sigaddset(&raised, signal);
    pthread_sigmask(SIG_BLOCK, &raised, &saved);
    sigset_t pending;
    if (sigpending(&pending) != 0)
      return;
    // One that waits already is the host program's.
    for (int signal : {SIGXFSZ, SIGPIPE})
      if (sigismember(&saved, signal) && sigismember(&pending, signal))
        sigdelset(&raised, signal);
  }
  ~NoWriteSignals() {
    const int failure = errno;
    const timespec noTime = {};
    while (sigtimedwait(&raised, nullptr, &noTime) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &saved, nullptr);
    errno = failure;
  }
  NoWriteSignals(const NoWriteSignals &) = delete;
  NoWriteSignals &operator=(const NoWriteSignals &) = delete;

private:
  /// Those that a write of this thread has raised.
  sigset_t raised;
  sigset_t saved;
};

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_BASE_WRITE_SIGNALS_H
