// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// NCCL frees a communicator even while a call uses it. So a thread that frees
// one waits here first, once NCCL has been asked to end those calls.

#ifndef DDPHOOK_RUNTIME_BACKENDS_CUDA_NCCL_CALLS_H
#define DDPHOOK_RUNTIME_BACKENDS_CUDA_NCCL_CALLS_H

#include <condition_variable>
#include <mutex>

namespace ddphook::cuda {

/// The calls of one communicator that wait for peers. Any thread may use it.
class NcclCalls {
public:
  void begin() {
    std::lock_guard<std::mutex> lock(mutex);
    ++count;
  }
  void end() {
    std::lock_guard<std::mutex> lock(mutex);
    --count;
    changed.notify_all();
  }
  void waitForNone() {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return count == 0; });
  }

private:
  std::mutex mutex;
  std::condition_variable changed;
  int count = 0;
};

} // namespace ddphook::cuda

#endif // DDPHOOK_RUNTIME_BACKENDS_CUDA_NCCL_CALLS_H
