// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a random job's devices are opened, what fails in it, and by which words
// the failure has to be told.

#pragma once

#include "backends/cuda/cuda_random_job.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace ddphook::test {

struct Trouble {
  /// EMULATED_CUDA_FAULT.
  std::string fault;
  /// A text in the status of the rank that finds it; empty: nothing may fail.
  std::string cause;
  /// Who is told of a lost rank, or comes too late, and before which step.
  int told = -1, late = -1;
  size_t step = 0;
  /// How much later than before that step the rank is told.
  int microseconds = 0;
  double timeout = 300;
  /// How devices are opened: options, and whether memory is the caller's.
  const char *options = "";
  bool isLent = false;
  /// The allocation that fails there; 0: none.
  int64_t failAt = 0;
};

Trouble makeTrouble(uint64_t seed, const RandomJob &job);

} // namespace ddphook::test
