//===- detached_call.h - calls that may never return ------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// NCCL's functions that end a communicator have no deadline. Each runs on a
// thread of its own, which its caller leaves to itself when time is up.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_CUDA_DETACHED_CALL_H
#define DDPHOOK_RUNTIME_BACKENDS_CUDA_DETACHED_CALL_H

#include "base/deadline.h"
#include "base/threads.h"

#include <future>

namespace ddphook::cuda {

/// Runs `function`, which owns all that it uses, on a thread called `name`. The
/// call has ended when it has returned, or if there is no such thread: then
/// what was to be ended stays.
template <typename Function>
std::future<void> callDetached(const char *name, Function &&function) {
  std::future<void> ended;
  withoutExceptions([&] {
    std::packaged_task<void()> task(std::forward<Function>(function));
    ended = task.get_future();
    std::thread thread;
    DDPHOOK_RETURN_IF_ERROR(startThread(name, &thread, std::move(task),
                                        [](const Status &) { return false; }));
    thread.detach();
    return Status::ok();
  }).ignore();
  return ended;
}

/// Returns true if the call has ended, waiting for that until `deadline`.
inline bool hasEnded(const std::future<void> &call, const Deadline &deadline) {
  return !call.valid() ||
         call.wait_until(deadline.time()) == std::future_status::ready;
}

} // namespace ddphook::cuda

#endif // DDPHOOK_RUNTIME_BACKENDS_CUDA_DETACHED_CALL_H
