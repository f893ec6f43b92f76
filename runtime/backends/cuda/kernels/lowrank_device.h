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

  int rank;
  /// Of the first number.
  int row;
  int column;
  /// To the next; a row more when that is beyond the last column.
  int rowStep;
  int columnStep;
};

/// Copies `count` rows of a factor (rows x rank, row-major) from `first` on
/// into shared memory, column by column, zeros where there are none. Columns
/// are `stride` numbers apart.
template <class Element>
__device__ __forceinline__ void
stageColumns(const ElemOf<Element> *factor, int64_t rows,
             const RowMajorTurns &turns, int64_t first, int count, int stride,
             ComputeOf<Element> *staged) {
  const int rank = turns.rank;
  const int present =
      static_cast<int>(rows - first < count ? rows - first : count) * rank;
  const ElemOf<Element> *source = factor + first * rank;
  int j = turns.row, k = turns.column;
  for (int i = static_cast<int>(threadIdx.x); i < count * rank; i += kThreads) {
    staged[k * stride + j] =
        i < present ? Element::widen(source[i]) : ComputeOf<Element>(0);
    j += turns.rowStep;
    k += turns.columnStep;
    if (k >= rank) {
      k -= rank;
      ++j;
    }
  }
}

/// The same of as many rows, and with zeros for columns up to kColumns.
template <class Element, int kRows, int kColumns, int kStride>
__device__ __forceinline__ void
stageAllColumns(const ElemOf<Element> *factor, int64_t rows, int64_t rank,
                int64_t first, ComputeOf<Element> *staged) {
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kColumns;
       i += kThreads) {
    const int j = i / kColumns, k = i % kColumns;
    ComputeOf<Element> value = 0;
    if (first + j < rows && k < rank)
      value = Element::widen(factor[(first + j) * rank + k]);
    staged[k * kStride + j] = value;
  }
}

/// Elements of a row of M, as many as a lane has; zeros from `count` on. With
/// `isAligned` there are all or none.
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
