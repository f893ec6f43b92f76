// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds out which ranks read the same clock, and by how much other clocks
// differ from rank 0's. Clocks of machines also drift apart, by some
// microseconds per second, which is not corrected.

#pragma once

#include "base/status.h"

#include <cstdint>
#include <functional>
#include <string>

namespace ddphook::trace {

/// Returns equal texts in processes for which now() reads the same clock.
std::string clockIdentity();

/// The value to add to times of this process to get the other one's.
struct ClockOffset {
  int64_t offset = 0;
  int64_t uncertainty = 0; ///< Maximum error in nanoseconds.
};

/// Asks the other process `questions` times for its time, and uses the fastest
/// answer: the other clock was read between question and answer, so half that
/// time bounds the error, however it is divided between the two directions.
/// `ask` returns the time there; its first failure ends the measurement.
Status measureClock(const std::function<Status(int64_t *)> &ask,
                    const std::function<int64_t()> &ownTime, int questions,
                    ClockOffset *result);

} // namespace ddphook::trace
