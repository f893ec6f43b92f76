// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// NCCL's functions that end a communicator, and CUDA's that free memory, have
// no deadline. Each runs on a separate thread, which its caller abandons when
// the time is up.

#pragma once

#include "base/deadline.h"
#include "base/threads.h"

#include <cuda_runtime_api.h>

#include <atomic>
#include <future>
#include <memory>

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

/// Makes a new thread use this GPU, whatever a capture elsewhere forbids: a
/// call for another GPU would create a context there.
inline void enterDevice(int device) {
  (void)cudaSetDevice(device);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
}

/// Runs a call that waits until the current device is idle, and with it for
/// work of others. After a second the call continues in the background; further
/// ones then wait for the same, and nobody for them.
template <typename Function>
void callWhileIdle(Function function) {
  constexpr double seconds = 1;
  static std::atomic<int> unended{0};
  // Without memory for a thread the call is not made.
  ignoreExceptions([&] {
    const bool isStuck = unended++ > 0;
    std::shared_ptr<void> counted(nullptr, [](void *) { --unended; });
    int device = 0;
    (void)cudaGetDevice(&device);
    const std::future<void> call = callDetached(
        "ddphook-free", [=, counted = std::move(counted)]() mutable {
          enterDevice(device);
          function();
          counted.reset();
        });
    (void)hasEnded(call, Deadline::after(isStuck ? 0 : seconds));
  });
}

} // namespace ddphook::cuda
