//===- lowrank_reconstruct.cu - out = P·Qᵀ, the error, and the rest -------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A block has a panel of columns, as wide as a warp's load, and a range of
// rows, of which each warp takes four at a time. The panel's part of Q and the
// rows' of P are in shared memory, column by column, so that one load of each
// serves sixteen products. One kernel for all ranks up to 32.
//
// The order of additions: from the first column of the factors to the last.
//
//===----------------------------------------------------------------------===//
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
  bool isDivided;

  /// m - product / divisor, each rounded.
  __device__ __forceinline__ Elem error(Elem x, Elem product) const {
    if (isDivided)
      product = divideElement<Element>(product, divisor);
    return subtractElements<Element>(x, product);
  }
};

template <class T>
struct ReconstructShape {
  static constexpr int kLength = laneColumns(sizeof(T));
  static constexpr int kPanel = 32 * kLength;
  static constexpr int kRows = kWarps * kReconstructRows;
  // The padding lets columns begin in different banks, and keeps packs aligned.
  static constexpr int kPanelStride = kPanel + kLength;
  static constexpr int kRowStride = kRows + kReconstructRows;

  static constexpr int64_t sharedBytes(int64_t columns) {
    return columns * (kPanelStride + kRowStride) * int64_t(sizeof(T));
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
    const int64_t count = tile.end - i;
    const bool isWhole = isAligned && count >= kLength;
    const Pack<Elem, kLength> x = loadRow<kLength>(rest + i, count, isWhole);
    if (err) {
      Pack<Elem, kLength> y = loadRow<kLength>(m + i, count, isWhole);
#pragma unroll
      for (int v = 0; v < kLength; ++v)
        y.elements[v] = a.error(y.elements[v], x.elements[v]);
      storeRow(err + i, y, count, isWhole);
    }
    if (isInRest)
      storeRow(out + i, x, count, isWhole);
  }
}

/// Four rows of P, whose columns are kRowStride apart, times a lane's columns
/// of Qᵀ, which are kPanelStride apart.
template <class T>
__device__ __forceinline__ void
multiplyFactors(const T *rows, const T *panel, int rank,
                T (&products)[kReconstructRows][laneColumns(sizeof(T))]) {
  using Shape = ReconstructShape<T>;
  constexpr int kLength = Shape::kLength, kRows = kReconstructRows;
  // Added to the first product, a negative zero keeps its sign.
  const T none = rank > 0 ? T(-0.0) : T(0);
#pragma unroll
  for (int b = 0; b < kRows; ++b) {
#pragma unroll
    for (int v = 0; v < kLength; ++v)
      products[b][v] = none;
  }
#pragma unroll 2
  for (int k = 0; k < rank; ++k) {
    T x[kRows];
#pragma unroll
    for (int b = 0; b < kRows; b += kPackLength<T>) {
      const Pack<T, kPackLength<T>> part =
          loadPack<kPackLength<T>>(rows + k * Shape::kRowStride + b, true);
#pragma unroll
      for (int i = 0; i < kPackLength<T>; ++i)
        x[b + i] = part.elements[i];
    }
    const Pack<T, kLength> y =
        loadPack<kLength>(panel + k * Shape::kPanelStride, true);
#pragma unroll
    for (int b = 0; b < kRows; ++b) {
#pragma unroll
      for (int v = 0; v < kLength; ++v)
        products[b][v] = multiplyAdd(x[b], y.elements[v], products[b][v]);
    }
  }
}

/// `most`: columns of a factor that there is room for.
template <class Element>
__global__ void __launch_bounds__(kThreads, 2)
    reconstructTiles(ReconstructArguments<Element> a, int most) {
  using T = ComputeOf<Element>;
  using Elem = ElemOf<Element>;
  using Shape = ReconstructShape<T>;
  constexpr int kLength = Shape::kLength, kRows = kReconstructRows;
  const Tile tile = a.tiles[blockIdx.x];
  if (tile.matrix < 0)
    return scatterPiece<Element>(a, tile);
  const MatrixEntry matrix = a.matrices[tile.matrix];
  const int rank = static_cast<int>(matrix.rank);
  const RowMajorTurns turns(rank);
  const Elem *p = a.p + matrix.pOffset, *q = a.q + matrix.qOffset;
  T *panel = dynamicShared<T>();
  T *rows = panel + most * Shape::kPanelStride;
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int64_t column = tile.column + lane * kLength;
  const int64_t count = matrix.columns - column;
  const Elem *m = a.err ? a.m + matrix.offset : nullptr;
  Elem *err = a.err ? a.err + matrix.offset : nullptr;
  Elem *out = a.out + matrix.offset;
  const bool isAligned =
      matrix.columns % kLength == 0 && isAlignedForPacks<kLength>(out) &&
      (!err ||
       (isAlignedForPacks<kLength>(m) && isAlignedForPacks<kLength>(err)));

#pragma unroll 1
  for (int64_t first = tile.begin; first < tile.end; first += Shape::kRows) {
    const int64_t row = first + warp * kRows;
    const int64_t start = opaque(row * matrix.columns + column);
    // These loads are in flight while the products are computed.
    Pack<Elem, kLength> errors[kRows];
    if (err) {
#pragma unroll
      for (int b = 0; b < kRows; ++b)
        errors[b] = loadRow<kLength>(m + start + b * matrix.columns,
                                     row + b < tile.end ? count : 0, isAligned);
    }
    __syncthreads();
    if (first == tile.begin)
      stageColumns<Element>(q, matrix.columns, turns, tile.column,
                            Shape::kPanel, Shape::kPanelStride, panel);
    stageColumns<Element>(p, tile.end, turns, first, Shape::kRows,
                          Shape::kRowStride, rows);
    __syncthreads();
    T products[kRows][kLength];
    multiplyFactors(rows + warp * kRows, panel + lane * kLength, rank,
                    products);

#pragma unroll
    for (int b = 0; b < kRows; ++b) {
      const int64_t here = row + b < tile.end ? count : 0;
      Pack<Elem, kLength> product;
#pragma unroll
      for (int v = 0; v < kLength; ++v)
        product.elements[v] = Element::narrow(products[b][v]);
      if (err) {
#pragma unroll
        for (int v = 0; v < kLength; ++v)
          errors[b].elements[v] =
              a.error(errors[b].elements[v], product.elements[v]);
        storeRow(err + start + b * matrix.columns, errors[b], here, isAligned);
      }
      storeRow(out + start + b * matrix.columns, product, here, isAligned);
    }
  }
}

} // namespace

cudaError_t ddphook::cuda::launchReconstruct(const StageLaunch &stage,
                                             const StepArrays &arrays,
                                             int64_t divisor) {
  if (stage.blocks == 0)
    return cudaSuccess;
  return withElement(stage.type, [&](auto element) {
    using Element = decltype(element);
    using Elem = ElemOf<Element>;
    using T = ComputeOf<Element>;
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
        static_cast<T>(divisor),
        divisor != 1};
    const int most = static_cast<int>(std::max<int64_t>(stage.largestRank, 1));
    return launch(stage.stream, stage.blocks, kThreads,
                  ReconstructShape<T>::sharedBytes(most),
                  reconstructTiles<Element>, arguments, most);
  });
}
