// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// TCP alone does not report in time that a machine has vanished: Linux sends no
// keepalive probes while data is unacknowledged, and retransmits that data for
// a quarter of an hour. TCP_USER_TIMEOUT would end the connection sooner, but
// also one to a live peer that has not read for that long, such as a rank that
// computes. So a waiting thread checks whether anything arrives: with keepalive
// on both ends (setControlOptions()), the system of a live machine sends
// something every three seconds, whatever its processes do.

#pragma once

#include "base/status.h"

#include <chrono>
#include <cstdint>

namespace ddphook {

/// The seconds for which a peer's machine may be silent. They exceed the usual
/// pauses between retransmissions (the sixth follows after 12.6 s), so that
/// short outages do no harm. When a machine is gone, the control connection
/// reports it first, with its rank.
inline constexpr double controlSilenceSeconds = 13;
inline constexpr double dataSilenceSeconds = 14;

/// Watches one connection, from the first look() on.
class Silence {
public:
  using Clock = std::chrono::steady_clock;

  explicit Silence(double seconds) : limit(seconds) {}

  /// The milliseconds between two looks of a wait.
  static constexpr int lookMs = 500;

  /// Looks at `socket`, unless it did so a moment ago. Fails with PEER_LOST if
  /// nothing has arrived for too long. Time without looks hardly counts,
  /// because this process or its machine may have been stopped.
  Status look(int socket, Clock::time_point now = Clock::now());

private:
  double limit;
  Clock::time_point last;
  /// The segments received by then, and the time since the last new one.
  uint32_t segments = 0;
  Clock::duration silent = {};
};

} // namespace ddphook
