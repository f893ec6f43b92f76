//===- silence.h - notices that a peer's machine is gone --------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// TCP alone does not say in time that a machine has vanished: Linux sends no
// keepalive probes while data is unacknowledged, and repeats that data for a
// quarter of an hour. TCP_USER_TIMEOUT would end it sooner, but also the
// connection to a peer that is alive and has not read for as long, such as a
// rank that computes. So whoever waits looks whether anything comes in: with
// keepalive on both ends (setControlOptions()), the system of a machine that
// is there sends something every three seconds, whatever its processes do.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_STORE_SILENCE_H
#define DDPHOOK_RUNTIME_SRC_STORE_SILENCE_H

#include "base/status.h"

#include <chrono>
#include <cstdint>

namespace ddphook {

/// How long a peer's machine may be silent, in seconds. Longer than the pauses
/// after which lost data is usually sent again, the sixth time after 12.6 s, so
/// that short outages do no harm. When a machine is gone, the control
/// connection says so first, and names its rank.
inline constexpr double controlSilenceSeconds = 13;
inline constexpr double dataSilenceSeconds = 14;

/// Watches one connection, from the first look on.
class Silence {
public:
  using Clock = std::chrono::steady_clock;

  explicit Silence(double seconds) : limit(seconds) {}

  /// How often a wait has to look, in milliseconds.
  static constexpr int lookMs = 500;

  /// Looks at `socket`, unless it did so a moment ago. Fails with PEER_LOST
  /// when nothing has come in for too long. Time without looks hardly counts:
  /// this process, or its machine, may have been stopped.
  Status look(int socket, Clock::time_point now = Clock::now());

private:
  double limit;
  Clock::time_point last;
  /// Segments that had come in by then, and for how long there were no more.
  uint32_t segments = 0;
  Clock::duration silent = {};
};

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_STORE_SILENCE_H
