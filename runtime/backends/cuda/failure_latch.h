//===- failure_latch.h - the first failure of a device ----------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Keeps the first failure, and how threads wait that must hear of one soon.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_CUDA_FAILURE_LATCH_H
#define DDPHOOK_RUNTIME_BACKENDS_CUDA_FAILURE_LATCH_H

#include "base/status.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

namespace ddphook::cuda {

/// All calls may come from any thread.
class FailureLatch {
public:
  /// Keeps `status` unless there is a failure already; gives the one kept.
  Status set(const Status &status) {
    std::lock_guard<std::mutex> lock(mutex);
    if (first.isOk() && !status.isOk()) {
      first = status;
      flag.store(true, std::memory_order_release);
    }
    return first;
  }

  bool isSet() const { return flag.load(std::memory_order_acquire); }

  /// The failure, or OK.
  Status get() const {
    if (!isSet())
      return Status::ok();
    std::lock_guard<std::mutex> lock(mutex);
    return first;
  }

private:
  mutable std::mutex mutex;
  std::atomic<bool> flag{false};
  Status first;
};

/// Pauses of a loop that asks again and again: short ones first, since most of
/// what is waited for takes microseconds. Beside other programs a yield takes
/// longer than all of those, and is not repeated: newer kernels make who yields
/// often wait for seconds.
class Backoff {
public:
  void pause() {
    if (Clock::now() - begin < yieldTime) {
      std::this_thread::yield();
      return;
    }
    std::this_thread::sleep_for(sleep);
    sleep = std::min(sleep * 2, longest);
  }

private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::microseconds yieldTime{100};
  static constexpr std::chrono::microseconds longest{200};
  const Clock::time_point begin = Clock::now();
  std::chrono::microseconds sleep{10};
};

} // namespace ddphook::cuda

#endif // DDPHOOK_RUNTIME_BACKENDS_CUDA_FAILURE_LATCH_H
