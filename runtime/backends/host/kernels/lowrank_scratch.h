// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The layout of lowrank.h's scratch memory; functions copy factors to it.
//
// Kernels need each column of a factor contiguous ("packed"), in the
// computation type, and padded with zeros so that loops have no remainder.
// Packed columns are `packedStride` elements apart: at least 16 zeros follow
// each, and columns of 1024 elements do not all map to one set of the cache.

#pragma once

#include "kernels.h"
#include "lowrank.h"

#include <algorithm>
#include <cstddef>

namespace ddphook::host {

/// The distance between packed columns of `n` elements.
constexpr size_t packedStride(size_t n) { return (n + 15) / 16 * 16 + 16; }

/// The two parts of the scratch, for factors of at most `rows` rows.
struct LowRankScratch {
  LowRankScratch(Dtype type, void *scratch, int64_t rows, int64_t rank)
      : packed(scratch),
        wide(elementAt(
            scratch, type == Dtype::F64 ? Dtype::F64 : Dtype::F32,
            static_cast<int64_t>(packedStride(static_cast<size_t>(rows))) *
                rank)) {}
  LowRankScratch(Dtype type, void *scratch, const LowRankShape &shape)
      : LowRankScratch(type, scratch, std::max(shape.rows, shape.columns),
                       shape.rank) {}

  /// `rank` packed columns.
  void *packed;
  /// A row-major factor in the computation type.
  void *wide;
};

/// Returns a factor in the computation type: itself, or a copy in `wide`.
inline const void *widenFactor(Dtype type, const void *factor, int64_t count,
                               void *wide) {
  if (!isHalf(type))
    return factor;
  castArray(factor, type, wide, Dtype::F32, count);
  return wide;
}

/// Returns the memory to which a kernel writes a factor in the computation
/// type: the factor itself, or `wide`, which narrowFactor() then converts.
inline void *widenedTarget(Dtype type, void *factor, void *wide) {
  return isHalf(type) ? wide : factor;
}

inline void narrowFactor(Dtype type, const void *wide, void *factor,
                         int64_t count) {
  if (isHalf(type))
    castArray(wide, Dtype::F32, factor, type, count);
}

} // namespace ddphook::host
