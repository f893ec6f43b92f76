// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Stochastic rounding of encoded collectives, which docs/quantization.md
// defines. The random number of an element depends only on the values below and
// on its position in the array, not on the kernel that rounds it.

#pragma once

#include <cstdint>
#include <optional>

namespace ddphook {

/// Key and counter of Philox4x32, without the element's number.
struct Rounding {
  /// The key, one per bucket.
  uint64_t stream = 0;
  /// The training step modulo 2^32.
  uint32_t step = 0;
  /// Selects who rounds: the sum, or one of the ranks after it.
  uint32_t lane = 0;
  /// The number of the array's first element; a multiple of 4.
  int64_t first = 0;

  /// Returns the rounding of the sum of all ranks, or of part `share` of an
  /// array that `ranks` ranks add.
  static Rounding ofSum(int64_t stream, int64_t step, int32_t share = 0,
                        int32_t ranks = 0) {
    return {static_cast<uint64_t>(stream), static_cast<uint32_t>(step),
            static_cast<uint32_t>(share) * (static_cast<uint32_t>(ranks) + 1),
            0};
  }

  /// Returns the rounding of a rank's own elements, next to this sum.
  Rounding ofRank(int32_t rank) const {
    return {stream, step, lane + static_cast<uint32_t>(rank) + 1, first};
  }
};

/// Returns the same for the part of the array that begins with element `begin`.
inline std::optional<Rounding> from(std::optional<Rounding> rounding,
                                    int64_t begin) {
  if (rounding)
    rounding->first += begin;
  return rounding;
}

} // namespace ddphook
