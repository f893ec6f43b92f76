// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Manages tickets and their events, and tracks which collectives have not
// ended. Events are created once; a collective takes two and returns them when
// it has ended.

#pragma once

#include "base/deadline.h"
#include "base/status.h"
#include "ddphook/runtime/backend.h"

#include <cuda_runtime_api.h>

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace ddphook::cuda {

/// A collective on the communication stream.
struct Collective {
  /// Recorded where the collective may begin, and where it has ended.
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  int64_t ticket = 0;
  ddphook_collective_t operation = {};
  /// The name of the process group in messages.
  std::shared_ptr<const std::string> group;
  /// Set once the collective is known to have begun.
  std::optional<Deadline> deadline;
  /// The compute stream waits for it, or will do so within its graph.
  bool isWaited = false;
};

/// One thread takes, publishes and waits; other threads may only poll.
class InFlight {
public:
  ~InFlight();

  /// Creates the events on the current device.
  Status create();

  /// Returns a collective to fill in, or null if all are in flight. With
  /// `isCapturing` its events become part of a graph.
  Collective *take(bool isCapturing);
  /// Puts back a collective that was taken and not published.
  void putBack(Collective *collective) {
    std::lock_guard<std::mutex> lock(mutex);
    unused.push_back(collective);
  }
  /// Returns the collective's ticket. Its events must have been recorded.
  int64_t publish(Collective *collective, bool isCapturing) {
    std::lock_guard<std::mutex> lock(mutex);
    collective->ticket = ++started;
    (isCapturing ? captured : pending).push_back(collective);
    return collective->ticket;
  }
  /// Returns a ticket that needs no waiting: the work is on the waiter's
  /// stream.
  int64_t publishEnded() {
    std::lock_guard<std::mutex> lock(mutex);
    return ++started;
  }

  /// Makes `stream` wait until `ticket` and all earlier ones have ended.
  Status wait(int64_t ticket, cudaStream_t stream);

  /// Forgets collectives that have ended. Returns the failure of the oldest one
  /// that has not: the device's, or DEADLINE_EXCEEDED `timeoutSeconds` after it
  /// was seen to have begun. Ignores captured collectives.
  Status poll(double timeoutSeconds);

  bool isEmpty() const {
    std::lock_guard<std::mutex> lock(mutex);
    return pending.empty();
  }
  /// Increases with every collective that ends.
  int64_t endedCount() const {
    std::lock_guard<std::mutex> lock(mutex);
    return ended;
  }

private:
  Collective *find(int64_t ticket);
  void releaseCaptured(int64_t ticket);

  mutable std::mutex mutex;
  std::vector<std::unique_ptr<Collective>> all;
  std::vector<Collective *> unused;
  /// Both are in ticket order.
  std::deque<Collective *> pending;
  std::deque<Collective *> captured;
  int64_t started = 0;
  int64_t ended = 0;
};

} // namespace ddphook::cuda
