// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// NCCL's functions that end a communicator have no deadline. Each runs on a
// separate thread, which its caller abandons when the time is up.

#pragma once

#include "base/deadline.h"
#include "base/threads.h"

#include <future>

namespace ddphook::cuda {

/// Runs `function`, which owns everything that it uses, on a thread named
/// `name`. The call counts as ended if no thread can be created: then nothing
/// is ended.
template <typename Function>
std::future<void> callDetached(const char *name, Function &&function) {
  std::future<void> ended;
  withoutExceptions([&] {
    std::packaged_task<void()> task(std::forward<Function>(function));
    ended = task.get_future();
    std::thread thread;
    DDPHOOK_TRY(startThread(name, &thread, std::move(task),
                            [](const Status &) { return false; }));
    thread.detach();
    return Status::ok();
  }).ignore();
  return ended;
}

/// Waits for the call until `deadline`; returns true if it has ended.
inline bool hasEnded(const std::future<void> &call, const Deadline &deadline) {
  return !call.valid() ||
         call.wait_until(deadline.time()) == std::future_status::ready;
}

} // namespace ddphook::cuda
