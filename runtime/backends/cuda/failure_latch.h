// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Keeps the first failure, and paces threads that must learn of one soon.

#pragma once

#include "base/status.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

namespace ddphook::cuda {

/// Any thread may call any function.
class FailureLatch {
public:
  /// Keeps `status` unless there is a failure already; returns the kept one.
  Status set(const Status &status) {
    std::lock_guard<std::mutex> lock(mutex);
    if (first.isOk() && !status.isOk()) {
      first = status;
      flag.store(true, std::memory_order_release);
    }
    return first;
  }

  bool isSet() const { return flag.load(std::memory_order_acquire); }

  /// Returns the failure, or OK.
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

/// Pauses a polling loop: briefly at first, since most waits take microseconds.
/// Next to other programs a yield takes longer than all of these and is not
/// repeated: newer kernels make a thread that yields often wait for seconds.
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
