// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Two failures of a write also send the writer a signal, which ends the process
// by default. A file that would exceed RLIMIT_FSIZE (`ulimit -f`) raises
// SIGXFSZ, and a pipe that nobody reads raises SIGPIPE.

#pragma once

#include <cerrno>
#include <ctime>
#include <initializer_list>
#include <signal.h>

namespace ddphook {

/// While this lives, such system calls of this thread only fail with EFBIG or
/// EPIPE. The host program's handlers, mask and pending signals do not change,
/// and neither does errno. A nested one costs nothing.
class NoWriteSignals {
public:
  NoWriteSignals() {
    if (depth++ > 0)
      return;
    sigemptyset(&raised);
    for (int signal : {SIGXFSZ, SIGPIPE})
      sigaddset(&raised, signal);
    pthread_sigmask(SIG_BLOCK, &raised, &saved);
    // A signal that is pending already is the host program's, which blocks it.
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
  static inline thread_local int depth = 0;
  /// The signals that a write of this thread may have raised.
  sigset_t raised;
  sigset_t saved;
};

} // namespace ddphook
