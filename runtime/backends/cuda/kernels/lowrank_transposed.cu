// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A block has a panel of columns, as wide as a warp's load, and a range of
// rows, which its warps take alternately. A row of P is the same for all lanes
// and comes from shared memory, to which a chunk is copied while the previous
// one is used; a warp's first loads of M are in flight while it waits for a
// chunk. Sums stay in registers until the warps' are added. If a matrix has
// several ranges of rows, the blocks' sums go to scratch memory, and a second
// kernel adds them.
//
// The order of additions of an element of Q: each warp adds its rows in order,
// then warps are added from the first to the last, then the ranges likewise. It
// is independent of the lane of a column, so panels are aligned to 16 bytes.
//
// In the L2 cache, M is kept for the last stage; the sums of ranges are
// streamed when they are added.

#include "global_memory.h"
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
  /// The rows of a warp that are loaded before the first is used.
  static constexpr int kRows = kBucket <= 4 ? 8 : 4;
  /// The rows of P in shared memory.
  static constexpr int kChunk = kBucket <= 8 ? 256 : 64;
  /// The numbers of a row of P that are loaded at once.
  static constexpr int kTogether =
      kBucket < kPackLength<T> ? kBucket : kPackLength<T>;
  /// The columns of P for which the warps' sums are added at a time.
  static constexpr int kSlice = kBucket < 4 ? kBucket : 4;
  static constexpr int kBlocks = kLength * kBucket * sizeof(T) <= 128 ? 2 : 1;
  static constexpr int kStaged = kChunk * kBucket;
  static constexpr int64_t kStagedBytes =
      2 * kStaged * int64_t(sizeof(ElemOf<Element>));
  static constexpr int64_t kSumBytes =
      kWarps * kPanel * kSlice * int64_t(sizeof(T));
  static constexpr int64_t kSharedBytes =
      kStagedBytes > kSumBytes ? kStagedBytes : kSumBytes;
};

/// Starts to copy rows first … end - 1 of P, at most a chunk, with zeros for as
/// many more as a warp takes at once.
template <class Element, int kBucket>
__device__ __forceinline__ void stageRows(const ElemOf<Element> *p, int rank,
                                          int64_t first, int64_t end,
                                          ElemOf<Element> *staged) {
  using Shape = TransposedShape<Element, kBucket>;
  using Elem = ElemOf<Element>;
  constexpr int kGranule = kPackLength<Elem>;
  const int count = static_cast<int>(
      end - first < Shape::kChunk ? end - first : Shape::kChunk);
  const Elem *from = p + first * rank;
  int copied = 0;
  if (rank == kBucket && isAlignedForPacks<kGranule>(from)) {
    const int granules = count * kBucket / kGranule;
    for (int i = static_cast<int>(threadIdx.x); i < granules; i += kThreads)
      copyToShared<16>(staged + i * kGranule, from + i * kGranule);
    copied = granules * kGranule;
  }
  if (copied < count * rank) {
    const RowMajorTurns turns(rank);
    int row = turns.row, k = turns.column;
    for (int i = static_cast<int>(threadIdx.x); i < count * rank;
         i += kThreads) {
      if (i >= copied)
        copyNumber(staged + row * kBucket + k, from + i);
      turns.next(row, k);
    }
  }
  const int padded = (count + Shape::kRows - 1) / Shape::kRows * Shape::kRows;
  for (int i = count * kBucket + static_cast<int>(threadIdx.x);
       i < padded * kBucket; i += kThreads)
    staged[i] = Elem(0);
  commitCopies();
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
  const int rank = static_cast<int>(matrix.rank);
  const Elem *p = a.p + matrix.pOffset;
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const LaneColumns<kLength> own(tile.column + lane * kLength, matrix.columns);
  const Elem *m = a.matrix + matrix.offset;
  const bool isWhole = own.isWhole && matrix.columns % kLength == 0 &&
                       isAlignedForPacks<kLength>(m + own.column);
  T *shared = dynamicShared<T>();
  Elem *staged = dynamicShared<Elem>();

  T sums[kLength][kBucket];
#pragma unroll
  for (int v = 0; v < kLength; ++v) {
#pragma unroll
    for (int k = 0; k < kBucket; ++k)
      sums[v][k] = 0;
  }
  Pack<Elem, kLength> x[kRows];
  auto fetch = [&](int64_t row) {
    const int64_t start = opaque(row * matrix.columns + own.column);
    withBool(isWhole, [&](auto whole) {
#pragma unroll
      for (int b = 0; b < kRows; ++b) {
        x[b] = {};
        if (row + b < tile.end && own.end > own.begin)
          x[b] = loadPart<Cache::Keep, kLength>(m + start + b * matrix.columns,
                                                own.begin, own.end,
                                                decltype(whole)::value);
      }
    });
  };
  if (tile.begin < tile.end)
    stageRows<Element, kBucket>(p, rank, tile.begin, tile.end, staged);
  int turn = 0;
#pragma unroll 1
  for (int64_t first = tile.begin; first < tile.end; first += Shape::kChunk) {
    int i = warp * kRows;
    bool isThere = first + i < tile.end;
    if (isThere)
      fetch(first + i);
    waitForCopies<0>();
    // All warps have finished the previous chunk, whose buffer is reused.
    __syncthreads();
    const Elem *chunk = staged + turn * Shape::kStaged;
    turn ^= 1;
    if (first + Shape::kChunk < tile.end)
      stageRows<Element, kBucket>(p, rank, first + Shape::kChunk, tile.end,
                                  staged + turn * Shape::kStaged);
#pragma unroll 1
    while (isThere) {
#pragma unroll
      for (int b = 0; b < kRows; ++b) {
#pragma unroll
        for (int k = 0; k < kBucket; k += Shape::kTogether) {
          const Pack<Elem, Shape::kTogether> factors =
              loadPack<Shape::kTogether>(chunk + (i + b) * kBucket + k, true);
#pragma unroll
          for (int t = 0; t < Shape::kTogether; ++t) {
            const T factor = Element::widen(factors.elements[t]);
#pragma unroll
            for (int v = 0; v < kLength; ++v)
              sums[v][k + t] = multiplyAdd(Element::widen(x[b].elements[v]),
                                           factor, sums[v][k + t]);
          }
        }
      }
      i += kWarps * kRows;
      isThere = i < Shape::kChunk && first + i < tile.end;
      if (isThere)
        fetch(first + i);
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
      if (j < 0 || j >= matrix.columns || k >= matrix.rank)
        continue;
      T sum = shared[i];
      for (int w = 1; w < kWarps; ++w)
        sum += shared[w * kOfWarp + i];
      if (matrix.splits == 1)
        storeElement<Cache::Keep>(a.q + matrix.qOffset + j * matrix.rank + k,
                                  Element::narrow(sum));
      else
        storeElement<Cache::Keep>(
            a.partials + matrix.partialOffset +
                (tile.split * matrix.columns + j) * matrix.rank + k,
            sum);
    }
  }
}

/// Adds the sums of ranges of rows; a tile is a range of elements of Q.
template <class Element>
__global__ void __launch_bounds__(kThreads)
    sumTiles(const MatrixEntry *matrices, const Tile *tiles,
             const ComputeOf<Element> *partials, ElemOf<Element> *q) {
  const Tile tile = tiles[blockIdx.x];
  const MatrixEntry matrix = matrices[tile.matrix];
  const int64_t size = matrix.columns * matrix.rank;
  for (int64_t i = tile.begin + threadIdx.x; i < tile.end; i += kThreads) {
    const ComputeOf<Element> *part = partials + matrix.partialOffset + i;
    ComputeOf<Element> sum = loadElement<Cache::Stream>(part);
#pragma unroll 16
    for (int split = 1; split < matrix.splits; ++split)
      sum += loadElement<Cache::Stream>(part + split * size);
    storeElement<Cache::Keep>(q + matrix.qOffset + i, Element::narrow(sum));
  }
}

} // namespace

cudaError_t ddphook::cuda::launchTransposed(const StageLaunch &stage,
                                            const StepArrays &arrays,
                                            void *partials) {
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
  return withElement(stage.type, [&](auto element) {
    using Element = decltype(element);
    return launch(stage.stream, stage.blocks, kThreads, 0, sumTiles<Element>,
                  stage.matrices, stage.tiles,
                  static_cast<const ComputeOf<Element> *>(partials),
                  static_cast<ElemOf<Element> *>(qOut));
  });
}
