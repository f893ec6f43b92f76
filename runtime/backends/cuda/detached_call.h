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
#include <system_error>

namespace ddphook::cuda {

/// Runs `function`, which owns all that it uses, on a thread called `name`. The
/// future is ready when it has returned, or when there is no such thread.
template <typename Function>
std::future<void> callDetached(const char *name, Function &&function) {
  std::packaged_task<void()> task(std::forward<Function>(function));
  std::future<void> ended = task.get_future();
  try {
    startThread(name, std::move(task)).detach();
  } catch (const std::system_error &) {
    // What was to be ended stays.
  }
  return ended;
}

/// Whether the call has returned, waiting for that until `deadline`.
inline bool hasEnded(const std::future<void> &call, const Deadline &deadline) {
  return call.wait_until(deadline.time()) == std::future_status::ready;
}

} // namespace ddphook::cuda

#endif // DDPHOOK_RUNTIME_BACKENDS_CUDA_DETACHED_CALL_H
