// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Device functions that several low-rank kernels use to load parts of factors
// and rows.

#pragma once

#include "global_memory.h"
#include "launch.h"
#include "lowrank_stages.h"

namespace ddphook::cuda {

/// Calls fn(std::integral_constant<int, bucket>()).
template <int kBucket = 1, class Fn>
cudaError_t withBucket(int bucket, const Fn &fn) {
  if (bucket == kBucket)
    return fn(std::integral_constant<int, kBucket>());
  if constexpr (kBucket < kMaxBucket)
    return withBucket<2 * kBucket>(bucket, fn);
  else
    return cudaErrorInvalidValue;
}

/// Finds the calling thread's numbers of a factor when a block's threads take
/// them row by row. Takes two divisions, so construct it once.
struct RowMajorTurns {
  __device__ explicit RowMajorTurns(int rank) : rank(rank) {
    const int columns = rank > 0 ? rank : 1;
    const int thread = static_cast<int>(threadIdx.x);
    row = thread / columns;
    column = thread - row * columns;
    rowStep = kThreads / columns;
    columnStep = kThreads - rowStep * columns;
  }

  /// Advances the row and column of a number to the thread's next number.
  __device__ __forceinline__ void next(int &j, int &k) const {
    j += rowStep;
    k += columnStep;
    if (k >= rank) {
      k -= rank;
      ++j;
    }
  }

  int rank;
  /// The first number's row and column.
  int row;
  int column;
  /// The steps to the next number; one more row after the last column.
  int rowStep;
  int columnStep;
};

/// Copies a number of a factor to shared memory, asynchronously if the device
/// can.
template <class T>
__device__ __forceinline__ void copyNumber(T *shared, const T *global) {
  if constexpr (sizeof(T) >= 4)
    copyToShared<sizeof(T)>(shared, global);
  else
    *shared = loadElement<Cache::Keep>(global);
}

/// A lane's kLength columns from `column` on. Only begin … end - 1 are in the
/// matrix: panels may start before its first column.
template <int kLength>
struct LaneColumns {
  __device__ LaneColumns(int64_t column, int64_t columns)
      : column(column), begin(static_cast<int>(column < 0 ? -column : 0)),
        end(static_cast<int>(columns - column < kLength ? columns - column
                                                        : kLength)),
        isWhole(begin == 0 && end == kLength) {}

  int64_t column;
  int begin;
  int end;
  bool isWhole;
};

/// Loads as many elements of a factor's row as a thread has; zeros from `count`
/// on. With `isAligned` all of them exist, or none.
template <int kLength, class T>
__device__ __forceinline__ Pack<T, kLength> loadRow(const T *p, int64_t count,
                                                    bool isAligned) {
  Pack<T, kLength> pack = {};
  if (isAligned) {
    if (count > 0)
      pack = loadPack<kLength>(p, true);
  } else {
#pragma unroll
    for (int v = 0; v < kLength; ++v)
      if (v < count)
        pack.elements[v] = p[v];
  }
  return pack;
}

template <int kLength, class T>
__device__ __forceinline__ void storeRow(T *p, const Pack<T, kLength> &pack,
                                         int64_t count, bool isAligned) {
  if (isAligned) {
    if (count > 0)
      storePack(p, pack, true);
  } else {
#pragma unroll
    for (int v = 0; v < kLength; ++v)
      if (v < count)
        p[v] = pack.elements[v];
  }
}

} // namespace ddphook::cuda
