//===- rounding.h - which random numbers round what -------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Stochastic rounding of encoded collectives, which docs/quantization.md
// defines. The random number of an element depends on what is stated here and
// on its place in the array, not on who rounds it, when, and what with.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_BASE_ROUNDING_H
#define DDPHOOK_RUNTIME_SRC_BASE_ROUNDING_H

#include <cstdint>
#include <optional>

namespace ddphook {

/// Key and counter of Philox4x32, but for the number of the element.
struct Rounding {
  /// The key: one for each bucket.
  uint64_t stream = 0;
  /// Training step, as far as it fits.
  uint32_t step = 0;
  /// Who has the elements: as described, the sum, and those after it the ranks.
  uint32_t lane = 0;
  /// The number of the array's first element; a multiple of 4.
  int64_t first = 0;

  /// The sum of all ranks; of share number `share` of an array, which `ranks`
  /// ranks add.
  static Rounding ofSum(int64_t stream, int64_t step, int32_t share = 0,
                        int32_t ranks = 0) {
    return {static_cast<uint64_t>(stream), static_cast<uint32_t>(step),
            static_cast<uint32_t>(share) * (static_cast<uint32_t>(ranks) + 1),
            0};
  }

  /// What a rank itself has, beside this sum.
  Rounding ofRank(int32_t rank) const {
    return {stream, step, lane + static_cast<uint32_t>(rank) + 1, first};
  }
};

/// The same of the part of the array that begins with element `begin`.
inline std::optional<Rounding> from(std::optional<Rounding> rounding,
                                    int64_t begin) {
  if (rounding)
    rounding->first += begin;
  return rounding;
}

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_BASE_ROUNDING_H
