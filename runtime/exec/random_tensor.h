// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Draws arguments for `--inputs=random:SEED`. This is not the generator of the
// hooks: only tests and trials may depend on these numbers.

#pragma once

#include "files/safetensors.h"

#include <cstdint>

namespace ddphook {

/// Identifies a random tensor of a run; equal keys give equal tensors.
struct RandomKey {
  uint64_t seed = 0;
  int32_t rank = 0;
  int64_t step = 0;
  uint64_t argument = 0;
};

/// Fills `count` elements of `type`. Floating-point types get standard normal
/// numbers, rounded to nearest even; booleans 0 or 1; integers 0 … 7.
void fillRandom(const RandomKey &key, TensorType type, uint64_t count,
                void *data);

} // namespace ddphook
