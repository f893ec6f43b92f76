// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The host program's signals are for its own threads. The runtime's threads,
// and those that a library starts for it, block all signals. No exception ends
// the process: see startThread().

#pragma once

#include "base/status.h"

#include <pthread.h>
#include <signal.h>
#include <system_error>
#include <thread>
#include <utility>

namespace ddphook {

/// While this lives, new threads inherit a mask that blocks all signals.
class BlockedSignals {
public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &saved, nullptr); }
  BlockedSignals(const BlockedSignals &) = delete;
  BlockedSignals &operator=(const BlockedSignals &) = delete;

private:
  sigset_t saved;
};

/// Starts a thread of the runtime. `name` has at most 15 characters. If
/// `function` throws, the thread passes the exception as a Status to `fail`,
/// and calls `function` again if `fail` returns true. `fail` fails whatever the
/// thread works for and must not throw. RESOURCE_EXHAUSTED: none can start.
template <typename Function, typename Fail>
Status startThread(const char *name, std::thread *thread, Function function,
                   Fail fail) {
  return withoutExceptions([&] {
    BlockedSignals blocked;
    try {
      *thread = std::thread(
          [function = std::move(function), fail = std::move(fail)]() mutable {
            Status status;
            do
              status = withoutExceptions([&] {
                function();
                return Status::ok();
              });
            while (!status.isOk() && fail(status));
          });
    } catch (const std::system_error &) {
      return Status(DDPHOOK_RESOURCE_EXHAUSTED,
                    "cannot start a thread (ulimit -u, pids.max)");
    }
    pthread_setname_np(thread->native_handle(), name);
    return Status::ok();
  });
}

} // namespace ddphook
