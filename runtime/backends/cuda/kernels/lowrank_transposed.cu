//===- lowrank_transposed.cu - Q = Mᵀ·P -----------------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A block has a panel of columns, as wide as a warp's load, and a range of
// rows; its warps take turns at the rows. A row of P is the same for all lanes
// and comes from shared memory; sums stay in registers until the warps' are
// added. Where a matrix has several ranges of rows, the blocks' sums go to
// scratch memory and a second kernel adds them.
//
// The order of additions of an element of Q: each warp over its rows in turn,
// then the warps from the first to the last, then the ranges likewise.
//
//===----------------------------------------------------------------------===//
#include "lowrank_device.h"

using namespace ddphook;
using namespace ddphook::cuda;

namespace {

template <class Element>
struct TransposedArguments {
  const MatrixEntry *matrices;
  const Tile *tiles;
  const ElemOf<Element> *matrix;
  const ElemOf<Element> *p;
  ElemOf<Element> *q;
  ComputeOf<Element> *partials;
};

template <class Element, int kBucket>
struct TransposedShape {
  using T = ComputeOf<Element>;
  static constexpr int kLength = transposedColumns(sizeof(T), kBucket);
  static constexpr int kPanel = 32 * kLength;
  /// Rows of a warp that are loaded before the first is used.
  static constexpr int kRows = kBucket <= 4 ? 8 : 4;
  /// Rows of P in shared memory.
  static constexpr int kChunk = kBucket <= 8 ? 256 : 64;
  /// Numbers of a row of P that are loaded at once.
  static constexpr int kTogether =
      kBucket < kPackLength<T> ? kBucket : kPackLength<T>;
  /// Columns of P that the warps' sums are added for at a time.
  static constexpr int kSlice = kBucket < 4 ? kBucket : 4;
  static constexpr int kBlocks = kLength * kBucket * sizeof(T) <= 128 ? 2 : 1;
  static constexpr int kStaged = kChunk * kBucket;
  static constexpr int kSums = kWarps * kPanel * kSlice;
  static constexpr int64_t kSharedBytes =
      int64_t(kStaged > kSums ? kStaged : kSums) * int64_t(sizeof(T));
};

/// Rows first … end - 1 of P, at most a chunk; zeros where there is nothing.
template <class Element, int kBucket>
__device__ __forceinline__ void stageRows(const ElemOf<Element> *p, int64_t end,
                                          int64_t rank, int64_t first,
                                          ComputeOf<Element> *staged) {
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x);
       i < TransposedShape<Element, kBucket>::kStaged; i += kThreads) {
    const int64_t row = first + i / kBucket, k = i % kBucket;
    ComputeOf<Element> value = 0;
    if (row < end && k < rank)
      value = Element::widen(p[row * rank + k]);
    staged[i] = value;
  }
}

template <class Element, int kBucket>
__global__ void __launch_bounds__(kThreads,
                                  TransposedShape<Element, kBucket>::kBlocks)
    transposedTiles(TransposedArguments<Element> a) {
  using Shape = TransposedShape<Element, kBucket>;
  using T = typename Shape::T;
  using Elem = ElemOf<Element>;
  constexpr int kLength = Shape::kLength, kRows = Shape::kRows;
  const Tile tile = a.tiles[blockIdx.x];
  const MatrixEntry matrix = a.matrices[tile.matrix];
  const Elem *m = a.matrix + matrix.offset;
  const Elem *p = a.p + matrix.pOffset;
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int64_t column = tile.column + lane * kLength;
  const int64_t count = matrix.columns - column;
  const bool isAligned =
      matrix.columns % kLength == 0 && isAlignedForPacks<kLength>(m);
  T *shared = dynamicShared<T>();

  T sums[kLength][kBucket];
#pragma unroll
  for (int v = 0; v < kLength; ++v) {
#pragma unroll
    for (int k = 0; k < kBucket; ++k)
      sums[v][k] = 0;
  }
#pragma unroll 1
  for (int64_t first = tile.begin; first < tile.end; first += Shape::kChunk) {
    __syncthreads();
    stageRows<Element, kBucket>(p, tile.end, matrix.rank, first, shared);
    __syncthreads();
#pragma unroll 1
    for (int i = warp * kRows; i < Shape::kChunk; i += kWarps * kRows) {
      if (first + i >= tile.end)
        break;
      Pack<Elem, kLength> x[kRows];
      const int64_t start = opaque((first + i) * matrix.columns + column);
#pragma unroll
      for (int b = 0; b < kRows; ++b)
        x[b] =
            loadRow<kLength>(m + start + b * matrix.columns,
                             first + i + b < tile.end ? count : 0, isAligned);
#pragma unroll
      for (int b = 0; b < kRows; ++b) {
#pragma unroll
        for (int k = 0; k < kBucket; k += Shape::kTogether) {
          const Pack<T, Shape::kTogether> factors =
              loadPack<Shape::kTogether>(shared + (i + b) * kBucket + k, true);
#pragma unroll
          for (int t = 0; t < Shape::kTogether; ++t) {
#pragma unroll
            for (int v = 0; v < kLength; ++v)
              sums[v][k + t] = multiplyAdd(Element::widen(x[b].elements[v]),
                                           factors.elements[t], sums[v][k + t]);
          }
        }
      }
    }
  }

#pragma unroll
  for (int slice = 0; slice < kBucket; slice += Shape::kSlice) {
    constexpr int kOfWarp = Shape::kPanel * Shape::kSlice;
    __syncthreads();
#pragma unroll
    for (int v = 0; v < kLength; ++v) {
#pragma unroll
      for (int k = 0; k < Shape::kSlice; ++k)
        shared[warp * kOfWarp + (lane * kLength + v) * Shape::kSlice + k] =
            sums[v][slice + k];
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kOfWarp; i += kThreads) {
      const int64_t j = tile.column + i / Shape::kSlice;
      const int64_t k = slice + i % Shape::kSlice;
      if (j >= matrix.columns || k >= matrix.rank)
        continue;
      T sum = shared[i];
      for (int w = 1; w < kWarps; ++w)
        sum += shared[w * kOfWarp + i];
      if (matrix.splits == 1)
        a.q[matrix.qOffset + j * matrix.rank + k] = Element::narrow(sum);
      else
        a.partials[matrix.partialOffset +
                   (tile.split * matrix.columns + j) * matrix.rank + k] = sum;
    }
  }
}

/// Adds the sums of ranges of rows; a tile is a range of the elements of Q.
template <class Element>
__global__ void __launch_bounds__(kThreads)
    sumTiles(const MatrixEntry *matrices, const Tile *tiles,
             const ComputeOf<Element> *partials, ElemOf<Element> *q) {
  const Tile tile = tiles[blockIdx.x];
  const MatrixEntry matrix = matrices[tile.matrix];
  const int64_t size = matrix.columns * matrix.rank;
  for (int64_t i = tile.begin + threadIdx.x; i < tile.end; i += kThreads) {
    const ComputeOf<Element> *part = partials + matrix.partialOffset + i;
    ComputeOf<Element> sum = part[0];
#pragma unroll 8
    for (int split = 1; split < matrix.splits; ++split)
      sum += part[split * size];
    q[matrix.qOffset + i] = Element::narrow(sum);
  }
}

} // namespace

cudaError_t ddphook::cuda::launchTransposed(const StageLaunch &stage,
                                            const StepArrays &arrays,
                                            void *partials) {
  if (stage.blocks == 0)
    return cudaSuccess;
  return withElement(stage.type, [&](auto element) {
    return withBucket(stage.bucket, [&](auto bucket) {
      using Element = decltype(element);
      using Elem = ElemOf<Element>;
      constexpr int kBucket = decltype(bucket)::value;
      const TransposedArguments<Element> arguments = {
          stage.matrices,
          stage.tiles,
          static_cast<const Elem *>(arrays.g),
          static_cast<const Elem *>(arrays.pIn),
          static_cast<Elem *>(arrays.qOut),
          static_cast<ComputeOf<Element> *>(partials)};
      return launch(stage.stream, stage.blocks, kThreads,
                    TransposedShape<Element, kBucket>::kSharedBytes,
                    transposedTiles<Element, kBucket>, arguments);
    });
  });
}

cudaError_t ddphook::cuda::launchSum(const StageLaunch &stage, void *qOut,
                                     const void *partials) {
  if (stage.blocks == 0)
    return cudaSuccess;
  return withElement(stage.type, [&](auto element) {
    using Element = decltype(element);
    return launch(stage.stream, stage.blocks, kThreads, 0, sumTiles<Element>,
                  stage.matrices, stage.tiles,
                  static_cast<const ComputeOf<Element> *>(partials),
                  static_cast<ElemOf<Element> *>(qOut));
  });
}
