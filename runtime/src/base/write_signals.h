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
#include <initializer_list>
#include <signal.h>

namespace ddphook {

/// While this lives, such system calls of this thread fail with EFBIG or EPIPE
/// and do nothing else. The host program's handlers, mask and pending signals
/// stay as they are, and so does errno. One inside another costs nothing.
class NoWriteSignals {
public:
  NoWriteSignals() {
    if (depth++ > 0)
      return;
    sigemptyset(&raised);
    for (int signal : {SIGXFSZ, SIGPIPE})
      sigaddset(&raised, signal);
    pthread_sigmask(SIG_BLOCK, &raised, &saved);
    // One that waits already is the host program's, which then blocks it.
    sigset_t pending;
    if ((!sigismember(&saved, SIGXFSZ) && !sigismember(&saved, SIGPIPE)) ||
        sigpending(&pending) != 0)
      return;
    for (int signal : {SIGXFSZ, SIGPIPE})
      if (sigismember(&saved, signal) && sigismember(&pending, signal))
        sigdelset(&raised, signal);
  }
  ~NoWriteSignals() {
    if (--depth > 0)
      return;
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
  /// How many of them this thread has.
  static inline thread_local int depth = 0;
  /// Those that a write of this thread has raised.
  sigset_t raised;
  sigset_t saved;
};

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_BASE_WRITE_SIGNALS_H
