//===- clock.h - the clocks of a job's ranks --------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which ranks read the same clock, and by how much the others' differ from rank
// 0's. Clocks of machines also drift apart, some microseconds a second, which
// is not corrected.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_TRACE_CLOCK_H
#define DDPHOOK_RUNTIME_SRC_TRACE_CLOCK_H

#include "base/status.h"

#include <cstdint>
#include <functional>
#include <string>

namespace ddphook::trace {

/// Equal on processes for which now() reads the same clock.
std::string clockIdentity();

/// What to add to times of this process to get the other one's.
struct ClockOffset {
  int64_t offset = 0;
  int64_t uncertainty = 0; ///< At most so much wrong, in nanoseconds.
};

/// Asks the other process `questions` times for its time, and believes the
/// answer that came fastest: the other clock was read between question and
/// answer, so half that time bounds the error, however the way is divided.
/// `ask` gives the time there; its first failure ends it.
Status measureClock(const std::function<Status(int64_t *)> &ask,
                    const std::function<int64_t()> &ownTime, int questions,
                    ClockOffset *result);

} // namespace ddphook::trace

#endif // DDPHOOK_RUNTIME_SRC_TRACE_CLOCK_H
