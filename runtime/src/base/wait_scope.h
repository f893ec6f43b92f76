// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The caller that begins a wait for a peer knows whom it waits for. The poll(2)
// or condition variable some calls below knows how much time passes. They meet
// in the thread's innermost scope, so that no call in between passes it on.

#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace ddphook {

/// While it lives, waits of its thread log a line after five seconds, and again
/// after pauses that double.
class WaitScope {
public:
  using Clock = std::chrono::steady_clock;

  /// `describe` returns the line without the time, "rank 0 is waiting for rank
  /// 1 of 8". Waits inside `describe` are not logged. Without `isTold` none is.
  explicit WaitScope(std::function<std::string()> describe, bool isTold = true,
                     Clock::time_point now = Clock::now());
  ~WaitScope();
  WaitScope(const WaitScope &) = delete;
  WaitScope &operator=(const WaitScope &) = delete;

  /// Returns when this thread must next call poll(), or Clock's largest value.
  static Clock::time_point due();
  /// Returns the same as milliseconds for poll(2), at most `most`.
  static int patienceMs(int most);
  /// Logs the line of the thread's innermost scope if it is due.
  static void poll(Clock::time_point now = Clock::now());

private:
  const std::function<std::string()> describe;
  const Clock::time_point start;
  Clock::duration pause;
  Clock::time_point next;
  WaitScope *const outer;
};

} // namespace ddphook
