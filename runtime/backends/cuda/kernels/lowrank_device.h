//===- lowrank_device.h - device code of several stages ---------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Device functions that the kernels of low-rank compression share: they load
// parts of factors and of rows.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_CUDA_KERNELS_LOWRANK_DEVICE_H
#define DDPHOOK_RUNTIME_BACKENDS_CUDA_KERNELS_LOWRANK_DEVICE_H

#include "global_memory.h"
#include "launch.h"
#include "lowrank_stages.h"

namespace ddphook::cuda {

/// Calls fn(std::integral_constant<int, bucket>()).
template <class Fn>
cudaError_t withBucket(int bucket, const Fn &fn) {
  switch (bucket) {
  case 1:
    return fn(std::integral_constant<int, 1>());
  case 2:
    return fn(std::integral_constant<int, 2>());
  case 4:
    return fn(std::integral_constant<int, 4>());
  case 8:
    return fn(std::integral_constant<int, 8>());
  case 16:
    return fn(std::integral_constant<int, 16>());
  case 32:
    return fn(std::integral_constant<int, 32>());
  }
  return cudaErrorInvalidValue;
}

/// Where the calling thread's numbers of a factor are when a block's threads
/// take them in turn, row by row. It takes two divisions: to be made once.
struct RowMajorTurns {
  __device__ explicit RowMajorTurns(int rank) : rank(rank) {
    const int columns = rank > 0 ? rank : 1;
    const int thread = static_cast<int>(threadIdx.x);
    row = thread / columns;
    column = thread - row * columns;
    rowStep = kThreads / columns;
    columnStep = kThreads - rowStep * columns;
  }

  /// From one number's row and column to the next one's.
  __device__ __forceinline__ void next(int &j, int &k) const {
    j += rowStep;
    k += columnStep;
    if (k >= rank) {
      k -= rank;
      ++j;
    }
  }

  int rank;
  /// Of the first number.
  int row;
  int column;
  /// To the next; a row more when that is beyond the last column.
  int rowStep;
  int columnStep;
};

/// Copies a number of a factor to shared memory, asynchronously where the
/// device can.
template <class T>
__device__ __forceinline__ void copyNumber(T *shared, const T *global) {
  if constexpr (sizeof(T) >= 4)
    copyToShared<sizeof(T)>(shared, global);
  else
    *shared = loadElement<Cache::Keep>(global);
}

/// A lane's kLength columns from `column` on, of which begin … end - 1 are the
/// matrix's: panels may begin before its first column.
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

/// Elements of a row of a factor, as many as a thread has; zeros from `count`
/// on. With `isAligned` there are all or none.
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

#endif // DDPHOOK_RUNTIME_BACKENDS_CUDA_KERNELS_LOWRANK_DEVICE_H
