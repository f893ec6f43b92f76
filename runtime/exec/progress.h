// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Shows on standard error which step a run is in, how long a step takes and how
// long the rest will take: on a terminal as one line that is overwritten,
// elsewhere, if requested, as a line every ten seconds.

#pragma once

#include "run_options.h"

#include <chrono>
#include <cstdint>
#include <string>

namespace ddphook {

class Progress {
public:
  Progress(const char *toolName, const RunOptions &options);
  /// Removes the line from a terminal.
  ~Progress();
  Progress(const Progress &) = delete;
  Progress &operator=(const Progress &) = delete;

  /// Must be called often: `step` has begun, or none if it is −1.
  void update(int64_t step);
  /// Says that all steps are done.
  void finish();

private:
  using Clock = std::chrono::steady_clock;

  void show(const std::string &text);
  std::string describe(int64_t step, Clock::time_point now) const;

  const char *const toolName;
  const int64_t steps;
  const bool isTerminal;
  const bool isShown;
  bool hasLine = false;
  /// The first step that was seen, or −1, and the time of that.
  int64_t firstStep = -1;
  Clock::time_point firstTime;
  Clock::time_point next;
};

} // namespace ddphook
