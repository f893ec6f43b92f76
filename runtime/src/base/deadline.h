// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every operation that waits for a peer carries a deadline, made once where the
// operation begins, so that nested waits share one budget. It uses the steady
// clock: setting the machine's time changes nothing.

#pragma once

#include <algorithm>
#include <chrono>

namespace ddphook {

/// Returns the time for a wait while other ranks already wait `seconds` for its
/// end. It is shorter, so that its failure reaches them in time.
inline double innerSeconds(double seconds) {
  return seconds - std::min(seconds / 10, 2.0);
}

class Deadline {
public:
  using Clock = std::chrono::steady_clock;

  /// Returns a deadline `seconds` from now, at most one year.
  static Deadline after(double seconds) {
    constexpr double year = 365.0 * 24 * 3600;
    double bounded = seconds > 0 ? std::min(seconds, year) : 0.0;
    return Deadline(Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                       std::chrono::duration<double>(bounded)));
  }

  bool expired() const { return Clock::now() >= end; }

  /// Returns the seconds left, at least 0.
  double remaining() const {
    return std::max(0.0,
                    std::chrono::duration<double>(end - Clock::now()).count());
  }

  /// Returns the milliseconds left for poll(2), rounded up, at least 0.
  int remainingMs() const {
    double ms = remaining() * 1e3 + 0.999;
    return ms > 1e9 ? 1000000000 : static_cast<int>(ms);
  }

  Clock::time_point time() const { return end; }

private:
  explicit Deadline(Clock::time_point end) : end(end) {}

  Clock::time_point end;
};

} // namespace ddphook
