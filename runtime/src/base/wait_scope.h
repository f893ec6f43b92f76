//===- wait_scope.h - a wait that tells for whom it waits -------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Whoever begins a wait for a peer knows for whom; whoever waits, a poll(2) or
// a condition variable some calls below, knows when time passes. They meet in
// the thread's innermost scope, so that no call in between passes it on.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_BASE_WAIT_SCOPE_H
#define DDPHOOK_RUNTIME_SRC_BASE_WAIT_SCOPE_H

#include <chrono>
#include <functional>
#include <string>

namespace ddphook {

/// While it lives, waits of its thread write a line to the log: after five
/// seconds, and then again after pauses that double.
class WaitScope {
public:
  using Clock = std::chrono::steady_clock;

  /// `describe` gives the line without the time, "rank 0 is waiting for rank 1
  /// of 8". It may wait itself, which is not told. Without `isTold` nothing is.
  explicit WaitScope(std::function<std::string()> describe, bool isTold = true,
                     Clock::time_point now = Clock::now());
  ~WaitScope();
  WaitScope(const WaitScope &) = delete;
  WaitScope &operator=(const WaitScope &) = delete;

  /// When the calling thread has to call poll() next; Clock's largest value if
  /// it never has to.
  static Clock::time_point due();
  /// The same as milliseconds for poll(2), at most `most`.
  static int patienceMs(int most);
  /// Writes the line of the thread's innermost scope if it is due.
  static void poll(Clock::time_point now = Clock::now());

private:
  const std::function<std::string()> describe;
  const Clock::time_point start;
  Clock::duration pause;
  Clock::time_point next;
  WaitScope *const outer;
};

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_BASE_WAIT_SCOPE_H
