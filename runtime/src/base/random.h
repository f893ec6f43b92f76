// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Draws PowerSGD's first Q, bit by bit: numpy's generator provides a seed for
// PyTorch's generator, which returns standard normal numbers (docs/parity.md).

#pragma once

#include "base/dtype.h"
#include "base/status.h"

#include <cstdint>

namespace ddphook {

/// The size of a generator in memory: 624 words and the position of the next
/// one, 624 when new words are due. It is numpy's
/// `RandomState(seed).get_state()[1:3]`.
constexpr int64_t generatorElements = 625;

/// Writes the state of `RandomState(seed)`.
void seedGenerator(uint32_t seed, int32_t *generator);

/// True if memory can be a generator: its position is valid.
bool isGenerator(const int32_t *generator);

/// Takes `randint(1e9)` from the generator, seeds PyTorch's CPU generator with
/// it, and writes `randn(draw)` for each of `drawCount` draws, one after
/// another. Draws may be empty; the seed is drawn even if `drawCount` is 0.
/// INVALID_ARGUMENT, and nothing is written, if the generator's position is
/// invalid or a draw is negative.
///
/// Expects the default floating-point environment.
Status drawNormal(int32_t *generator, const int64_t *draws, int64_t drawCount,
                  void *out, Dtype dtype);

} // namespace ddphook
