// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A block has a panel of columns, as wide as a warp's load, and a range of
// rows, of which each warp takes four at a time. The panel's part of Q is in
// shared memory, column by column, so that one load serves sixteen products.
// Each warp keeps its rows of P there: it copies the next four while it uses
// these, so the block needs no barrier but the first. One kernel serves all
// ranks up to 32.
//
// The order of additions is from the first column of the factors to the last.
// It does not depend on which lane has an element, so panels start at multiples
// of 16 bytes.
//
// In the L2 cache, all arrays are streamed: M is read for the last time, and
// nobody reads out or err before the next step or another kernel of the caller.

#include "global_memory.h"
#include "lowrank_device.h"

#include <algorithm>

using namespace ddphook;
using namespace ddphook::cuda;

namespace {

template <class Element>
struct ReconstructArguments {
  using Elem = ElemOf<Element>;
  const MatrixEntry *matrices;
  const ddphook_piece_t *pieces;
  const Tile *tiles;
  const Elem *p;
  const Elem *q;
  const Elem *rest;
  const Elem *m;
  Elem *out;
  Elem *err;
  ComputeOf<Element> divisor;
  /// See Divisor in elements.h.
  ComputeOf<Element> factor;

  /// Returns m - product / divisor, each rounded.
  __device__ __forceinline__ Elem error(Elem x, Elem product) const {
    product = factor != 0 ? scaleElement<Element>(product, factor)
                          : divideElement<Element>(product, divisor);
    return subtractElements<Element>(x, product);
  }
};

template <class Element>
struct ReconstructShape {
  using T = ComputeOf<Element>;
  using Elem = ElemOf<Element>;
  static constexpr int kLength = laneColumns(sizeof(T));
  static constexpr int kPanel = 32 * kLength;
  static constexpr int kRows = kWarps * kReconstructRows;
  // The padding puts columns into different banks and keeps packs aligned.
  static constexpr int kStride = kPanel + kLength;
  /// The numbers of a warp's rows of P that are copied at once: up to 16 bytes.
  static constexpr int kGranule = kReconstructRows < kPackLength<Elem>
                                      ? kReconstructRows
                                      : kPackLength<Elem>;

  static DDPHOOK_HOST_DEVICE constexpr int64_t panelBytes(int64_t rank) {
    return rank * kStride * int64_t(sizeof(T));
  }
  /// Includes two sets of rows of P for every warp.
  static constexpr int64_t sharedBytes(int64_t rank) {
    return panelBytes(rank) + 2 * kRows * rank * int64_t(sizeof(Elem));
  }
};

template <class Element>
__device__ void scatterPiece(const ReconstructArguments<Element> &a,
                             const Tile &tile) {
  using Elem = ElemOf<Element>;
  constexpr int kLength = kPackLength<Elem>;
  const ddphook_piece_t piece = a.pieces[-1 - tile.matrix];
  const bool isInRest = piece.rest_offset != kNotInRest;
  const Elem *m = a.err ? a.m + piece.offset : nullptr;
  Elem *err = a.err ? a.err + piece.offset : nullptr;
  Elem *out = a.out + piece.offset;
  const Elem *rest = isInRest ? a.rest + piece.rest_offset : out;
  const bool isAligned =
      isAlignedForPacks<kLength>(rest) && isAlignedForPacks<kLength>(out) &&
      (!err ||
       (isAlignedForPacks<kLength>(m) && isAlignedForPacks<kLength>(err)));
  for (int64_t i = tile.begin + int64_t(threadIdx.x) * kLength; i < tile.end;
       i += kThreads * kLength) {
    const int end =
        static_cast<int>(tile.end - i < kLength ? tile.end - i : kLength);
    const bool isWhole = isAligned && end == kLength;
    const Pack<Elem, kLength> x =
        loadPart<Cache::Stream, kLength>(rest + i, 0, end, isWhole);
    if (err) {
      Pack<Elem, kLength> y =
          loadPart<Cache::Stream, kLength>(m + i, 0, end, isWhole);
#pragma unroll
      for (int v = 0; v < kLength; ++v)
        y.elements[v] = a.error(y.elements[v], x.elements[v]);
      storePart<Cache::Stream>(err + i, y, 0, end, isWhole);
    }
    if (isInRest)
      storePart<Cache::Stream>(out + i, x, 0, end, isWhole);
  }
}

/// Copies the rows of Q of a panel's columns, from `first` on, to shared
/// memory, widened and column by column; zeros where there are none.
template <class Element>
__device__ __forceinline__ void
stagePanel(const ElemOf<Element> *q, const MatrixEntry &matrix, int64_t first,
           ComputeOf<Element> *panel) {
  using Shape = ReconstructShape<Element>;
  const RowMajorTurns turns(static_cast<int>(matrix.rank));
  int j = turns.row, k = turns.column;
  while (j < Shape::kPanel && turns.rank > 0) {
    const int64_t row = first + j;
    ComputeOf<Element> value = 0;
    if (row >= 0 && row < matrix.columns)
      value =
          Element::widen(loadElement<Cache::Keep>(q + row * turns.rank + k));
    panel[k * Shape::kStride + j] = value;
    turns.next(j, k);
  }
}

/// Starts to copy `rows` rows of P, at most a warp's, for the calling warp.
template <class Element>
__device__ __forceinline__ void stageWarpRows(const ElemOf<Element> *p,
                                              int rank, int rows,
                                              ElemOf<Element> *staged) {
  constexpr int kGranule = ReconstructShape<Element>::kGranule;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int numbers = rows < 0 ? 0 : rows * rank;
  int begin = 0;
  if (isAlignedForPacks<kGranule>(p)) {
    const int granules = numbers / kGranule;
    for (int i = lane; i < granules; i += 32)
      copyToShared<kGranule * sizeof(ElemOf<Element>)>(staged + i * kGranule,
                                                       p + i * kGranule);
    begin = granules * kGranule;
  }
  for (int i = begin + lane; i < numbers; i += 32)
    copyNumber(staged + i, p + i);
  commitCopies();
}

/// Multiplies four rows of P by a lane's columns of Qᵀ, kStride apart.
template <class Element, class T>
__device__ __forceinline__ void
multiplyFactors(const ElemOf<Element> *rows, const T *panel, int rank,
                T (&products)[kReconstructRows][laneColumns(sizeof(T))]) {
  using Shape = ReconstructShape<Element>;
  constexpr int kLength = Shape::kLength, kRows = kReconstructRows;
  // Added to the first product, a negative zero keeps the product's sign.
  const T none = rank > 0 ? T(-0.0) : T(0);
#pragma unroll
  for (int b = 0; b < kRows; ++b) {
#pragma unroll
    for (int v = 0; v < kLength; ++v)
      products[b][v] = none;
  }
#pragma unroll 2
  for (int k = 0; k < rank; ++k) {
    const Pack<T, kLength> y =
        loadPack<kLength>(panel + k * Shape::kStride, true);
#pragma unroll
    for (int b = 0; b < kRows; ++b) {
      const T x = Element::widen(rows[b * rank + k]);
#pragma unroll
      for (int v = 0; v < kLength; ++v)
        products[b][v] = multiplyAdd(x, y.elements[v], products[b][v]);
    }
  }
}

/// Computes the tiles; `most` is the capacity for columns of a factor.
template <class Element>
__global__ void __launch_bounds__(kThreads, 2)
    reconstructTiles(ReconstructArguments<Element> a, int most) {
  using Shape = ReconstructShape<Element>;
  using T = typename Shape::T;
  using Elem = ElemOf<Element>;
  constexpr int kLength = Shape::kLength, kRows = kReconstructRows;
  const Tile tile = a.tiles[blockIdx.x];
  if (tile.matrix < 0)
    return scatterPiece<Element>(a, tile);
  const MatrixEntry matrix = a.matrices[tile.matrix];
  const int rank = static_cast<int>(matrix.rank);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  T *panel = dynamicShared<T>();
  Elem *staged = reinterpret_cast<Elem *>(dynamicShared<unsigned char>() +
                                          Shape::panelBytes(most)) +
                 2 * warp * kRows * rank;
  const LaneColumns<kLength> own(tile.column + lane * kLength, matrix.columns);
  const Elem *m = a.err ? a.m + matrix.offset + own.column : nullptr;
  Elem *err = a.err ? a.err + matrix.offset + own.column : nullptr;
  Elem *out = a.out + matrix.offset + own.column;
  const bool isWhole = own.isWhole && matrix.columns % kLength == 0 &&
                       isAlignedForPacks<kLength>(out) &&
                       (!err || (isAlignedForPacks<kLength>(m) &&
                                 isAlignedForPacks<kLength>(err)));
  auto stage = [&](int64_t row, int turn) {
    const int64_t left = tile.end - row;
    stageWarpRows<Element>(a.p + matrix.pOffset + row * rank, rank,
                           static_cast<int>(left < kRows ? left : kRows),
                           staged + turn * kRows * rank);
  };

  int turn = 0;
  stage(tile.begin + warp * kRows, turn);
#pragma unroll 1
  for (int64_t first = tile.begin; first < tile.end; first += Shape::kRows) {
    const int64_t row = first + warp * kRows;
    const int64_t start = opaque(row * matrix.columns);
    auto isThere = [&](int b) {
      return row + b < tile.end && own.end > own.begin;
    };
    // These loads are in flight while the products are computed.
    Pack<Elem, kLength> errors[kRows];
    if (err)
      withBool(isWhole, [&](auto whole) {
#pragma unroll
        for (int b = 0; b < kRows; ++b)
          if (isThere(b))
            errors[b] = loadPart<Cache::Stream, kLength>(
                m + start + b * matrix.columns, own.begin, own.end,
                decltype(whole)::value);
      });
    if (first == tile.begin) {
      stagePanel<Element>(a.q + matrix.qOffset, matrix, tile.column, panel);
      __syncthreads();
    }
    // All lanes have finished the previous rows, whose buffer is reused.
    __syncwarp();
    stage(row + Shape::kRows, turn ^ 1);
    waitForCopies<1>();
    __syncwarp();
    T products[kRows][kLength];
    multiplyFactors<Element>(staged + turn * kRows * rank,
                             panel + lane * kLength, rank, products);
    turn ^= 1;

    withBool(isWhole, [&](auto whole) {
#pragma unroll
      for (int b = 0; b < kRows; ++b) {
        if (!isThere(b))
          continue;
        Pack<Elem, kLength> product;
#pragma unroll
        for (int v = 0; v < kLength; ++v)
          product.elements[v] = Element::narrow(products[b][v]);
        const int64_t i = start + b * matrix.columns;
        if (err) {
#pragma unroll
          for (int v = 0; v < kLength; ++v)
            errors[b].elements[v] =
                a.error(errors[b].elements[v], product.elements[v]);
          storePart<Cache::Stream>(err + i, errors[b], own.begin, own.end,
                                   decltype(whole)::value);
        }
        storePart<Cache::Stream>(out + i, product, own.begin, own.end,
                                 decltype(whole)::value);
      }
    });
  }
}

} // namespace

cudaError_t ddphook::cuda::launchReconstruct(const StageLaunch &stage,
                                             const StepArrays &arrays,
                                             int64_t divisor) {
  return withElement(stage.type, [&](auto element) {
    using Element = decltype(element);
    using Elem = ElemOf<Element>;
    const ReconstructArguments<Element> arguments = {
        stage.matrices,
        stage.pieces,
        stage.tiles,
        static_cast<const Elem *>(arrays.pIn),
        static_cast<const Elem *>(arrays.q),
        static_cast<const Elem *>(arrays.rest),
        static_cast<const Elem *>(arrays.g),
        static_cast<Elem *>(arrays.out),
        static_cast<Elem *>(arrays.err),
        static_cast<ComputeOf<Element>>(divisor),
        Divisor(divisor, arrays.dividesExactly).factor<ComputeOf<Element>>()};
    const int most = static_cast<int>(std::max<int64_t>(stage.largestRank, 1));
    return launch(stage.stream, stage.blocks, kThreads,
                  ReconstructShape<Element>::sharedBytes(most),
                  reconstructTiles<Element>, arguments, most);
  });
}
