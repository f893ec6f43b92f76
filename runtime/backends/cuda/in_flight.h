//===- in_flight.h - collectives that were started --------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tickets, the events behind them, and which collectives have not ended yet.
// Events are created once; a collective takes two and gives them back when it
// has ended.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_CUDA_IN_FLIGHT_H
#define DDPHOOK_RUNTIME_BACKENDS_CUDA_IN_FLIGHT_H

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
  /// Recorded where it may begin, and where it has ended.
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  int64_t ticket = 0;
  ddphook_collective_t operation = {};
  /// What messages call the process group.
  std::shared_ptr<const std::string> group;
  /// Set when it was seen to have begun.
  std::optional<Deadline> deadline;
  /// The compute stream waits for it, or does within the graph that it is in.
  bool isWaited = false;
};

/// One thread takes, publishes and waits; any other may look.
class InFlight {
public:
  ~InFlight();

  /// Creates the events on the current device.
  Status create();

  /// A collective to fill in; null when all are under way. With `isCapturing`
  /// its events become part of a graph.
  Collective *take(bool isCapturing);
  /// Returns a collective that was taken and not published.
  void putBack(Collective *collective);
  /// Its ticket. Its events are recorded by now.
  int64_t publish(Collective *collective, bool isCapturing);
  /// The ticket of something that needs no waiting for: it is on the stream of
  /// those who would wait.
  int64_t publishEnded();

  /// Lets `stream` go on when `ticket` has ended, and all before it.
  Status wait(int64_t ticket, cudaStream_t stream);

  /// Forgets what has ended. The failure of the oldest collective that has not:
  /// the device's, or DEADLINE_EXCEEDED `timeoutSeconds` after it was seen to
  /// have begun. What is captured is not looked at.
  Status poll(double timeoutSeconds);

  bool isEmpty() const;
  /// Grows with everything that ends.
  int64_t endedCount() const;

private:
  Collective *find(int64_t ticket);
  void releaseCaptured(int64_t ticket);

  mutable std::mutex mutex;
  std::vector<std::unique_ptr<Collective>> all;
  std::vector<Collective *> unused;
  /// Both in the order of their tickets.
  std::deque<Collective *> pending;
  std::deque<Collective *> captured;
  int64_t started = 0;
  int64_t ended = 0;
};

} // namespace ddphook::cuda

#endif // DDPHOOK_RUNTIME_BACKENDS_CUDA_IN_FLIGHT_H
