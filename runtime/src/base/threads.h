//===- threads.h - how the runtime starts its threads -----------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The host program's signals belong to the host program's threads: the
// runtime's own threads, and those of libraries that it makes start some, block
// all of them. No exception ends the process: see startThread().
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_BASE_THREADS_H
#define DDPHOOK_RUNTIME_SRC_BASE_THREADS_H

#include "base/status.h"

#include <pthread.h>
#include <signal.h>
#include <system_error>
#include <thread>
#include <utility>

namespace ddphook {

/// Threads that are started while this lives inherit a mask with all signals
/// blocked.
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

/// Starts a thread of the runtime. `name` has at most 15 characters. If an
/// exception leaves `function`, the thread calls `fail` with it as a Status,
/// and then, if `fail` returns true, `function` again. `fail` makes it the
/// failure of whatever the thread works for, and may not throw.
/// RESOURCE_EXHAUSTED: there is no such thread.
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

#endif // DDPHOOK_RUNTIME_SRC_BASE_THREADS_H
