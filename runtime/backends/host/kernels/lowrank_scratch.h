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
template <class T>
struct LowRankScratch {
  LowRankScratch(void *scratch, int64_t rows, int64_t rank)
      : packed(static_cast<T *>(scratch)),
        wide(packed + packedStride(static_cast<size_t>(rows)) *
                          static_cast<size_t>(rank)) {}
  LowRankScratch(void *scratch, const LowRankShape &shape)
      : LowRankScratch(scratch, std::max(shape.rows, shape.columns),
                       shape.rank) {}

  /// `rank` packed columns.
  T *packed;
  /// A row-major factor in the computation type.
  T *wide;
};

/// Returns a factor in the computation type: itself, or a copy in `wide`.
template <class T>
const T *widenFactor(Dtype type, const void *factor, int64_t count, T *wide) {
  if (!isHalf(type))
    return static_cast<const T *>(factor);
  castArray(factor, type, wide, Dtype::F32, count);
  return wide;
}

/// Returns the memory to which a kernel writes a factor in the computation
/// type: the factor itself, or `wide`, which narrowFactor() then converts.
template <class T>
T *widenedTarget(Dtype type, void *factor, T *wide) {
  return isHalf(type) ? wide : static_cast<T *>(factor);
}

template <class T>
void narrowFactor(Dtype type, const T *wide, void *factor, int64_t count) {
  if (isHalf(type))
    castArray(wide, Dtype::F32, factor, type, count);
}

/// Calls fn(T()) with the computation type of `type`.
template <class Fn>
void withComputeType(Dtype type, const Fn &fn) {
  if (type == Dtype::F64)
    fn(double());
  else
    fn(float());
}

} // namespace ddphook::host
