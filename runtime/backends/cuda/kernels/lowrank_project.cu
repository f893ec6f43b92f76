//===- lowrank_project.cu - M = G + E, P = M·Q, and the rest --------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A warp has a few rows of M and goes along them in steps, each lane with 16
// bytes of numbers of each row; Q is in shared memory, column by column, a
// chunk of steps at a time, and what a lane loads of it is used for all its
// rows. Long rows of small matrices are shared by several warps, which take
// turns at steps.
//
// The order of additions of an element of P: each lane over its columns in
// turn, then the lanes by halves, then the warps of the row.
//
//===----------------------------------------------------------------------===//
#include "lowrank_device.h"
#include "reductions.h"

using namespace ddphook;
using namespace ddphook::cuda;

namespace {

template <class Elem>
struct ProjectArguments {
  const MatrixEntry *matrices;
  const ddphook_piece_t *pieces;
  const Tile *tiles;
  const Elem *g;
  const Elem *e;
  const Elem *q;
  Elem *m;
  Elem *p;
  Elem *rest;
};

/// The sizes of a kernel.
template <class Element, int kBucket>
struct ProjectShape {
  using T = ComputeOf<Element>;
  static constexpr int kLength = laneColumns(sizeof(T));
  static constexpr int kStep = 32 * kLength;
  static constexpr int kSteps = projectSteps(kBucket);
  static constexpr int kColumns = kSteps * kStep;
  // The padding lets columns of the chunk begin in different banks.
  static constexpr int kStride = kColumns + kLength;
  static constexpr int kRows = projectRows(sizeof(T), kBucket);
  static constexpr int kValues = kRows * kBucket;
  // Blocks of a multiprocessor at least, which bounds the registers.
  static constexpr int kBlocks = kValues * sizeof(T) <= 128 ? 2 : 1;
  static constexpr int64_t kSharedBytes =
      int64_t(kBucket * kStride + kWarps * kValues) * int64_t(sizeof(T));
};

/// The source of the elements of M; with `e`, the sum is computed and stored.
template <class Element, int kLength>
struct RowsOfM {
  using Elem = ElemOf<Element>;

  __device__ RowsOfM(const Elem *g, const Elem *e, Elem *m, int64_t rowLength)
      : g(g), e(e), m(m),
        isAligned(rowLength % kLength == 0 && isAlignedForPacks<kLength>(g) &&
                  (!e || (isAlignedForPacks<kLength>(e) &&
                          isAlignedForPacks<kLength>(m)))) {}

  /// For kRows rows from element i on, of which there are `rows`; `count`
  /// columns are left.
  template <int kRows, class T>
  __device__ __forceinline__ void load(int64_t i, int64_t rowLength, int rows,
                                       int64_t count,
                                       T (&x)[kRows][kLength]) const {
    if (isAligned) {
      loadAligned(i, rowLength, count > 0 ? rows : 0, x);
      return;
    }
#pragma unroll
    for (int b = 0; b < kRows; ++b) {
#pragma unroll
      for (int v = 0; v < kLength; ++v) {
        Elem sum = 0;
        if (b < rows && v < count) {
          const int64_t j = i + b * rowLength + v;
          sum = g[j];
          if (e)
            m[j] = sum = addElements<Element>(e[j], sum);
        }
        x[b][v] = Element::widen(sum);
      }
    }
  }

  /// Whole packs, all of which are loaded before the first is used.
  template <int kRows, class T>
  __device__ __forceinline__ void loadAligned(int64_t i, int64_t rowLength,
                                              int rows,
                                              T (&x)[kRows][kLength]) const {
    Pack<Elem, kLength> sums[kRows];
#pragma unroll
    for (int b = 0; b < kRows; ++b) {
      sums[b] = {};
      if (b < rows)
        sums[b] = loadPack<kLength>(g + i + b * rowLength, true);
    }
    if (e) {
      Pack<Elem, kLength> others[kRows];
#pragma unroll
      for (int b = 0; b < kRows; ++b)
        if (b < rows)
          others[b] = loadPack<kLength>(e + i + b * rowLength, true);
#pragma unroll
      for (int b = 0; b < kRows; ++b) {
        if (b >= rows)
          continue;
#pragma unroll
        for (int v = 0; v < kLength; ++v)
          sums[b].elements[v] =
              addElements<Element>(others[b].elements[v], sums[b].elements[v]);
        storePack(m + i + b * rowLength, sums[b], true);
      }
    }
#pragma unroll
    for (int b = 0; b < kRows; ++b) {
#pragma unroll
      for (int v = 0; v < kLength; ++v)
        x[b][v] = Element::widen(sums[b].elements[v]);
    }
  }

  const Elem *g;
  const Elem *e;
  Elem *m;
  bool isAligned;
};

template <class Element>
__device__ void gatherPiece(const ProjectArguments<ElemOf<Element>> &a,
                            const Tile &tile) {
  using Elem = ElemOf<Element>;
  constexpr int kLength = kPackLength<Elem>;
  const ddphook_piece_t piece = a.pieces[-1 - tile.matrix];
  const Elem *g = a.g + piece.offset, *e = a.e ? a.e + piece.offset : nullptr;
  Elem *m = a.m ? a.m + piece.offset : nullptr;
  Elem *rest =
      piece.rest_offset == kNotInRest ? nullptr : a.rest + piece.rest_offset;
  const bool isAligned =
      isAlignedForPacks<kLength>(g) && isAlignedForPacks<kLength>(rest) &&
      (!e || (isAlignedForPacks<kLength>(e) && isAlignedForPacks<kLength>(m)));
  for (int64_t i = tile.begin + int64_t(threadIdx.x) * kLength; i < tile.end;
       i += kThreads * kLength) {
    const int64_t count = tile.end - i;
    const bool isWhole = isAligned && count >= kLength;
    Pack<Elem, kLength> x = loadRow<kLength>(g + i, count, isWhole);
    if (e) {
      const Pack<Elem, kLength> y = loadRow<kLength>(e + i, count, isWhole);
#pragma unroll
      for (int v = 0; v < kLength; ++v)
        x.elements[v] = addElements<Element>(y.elements[v], x.elements[v]);
      storeRow(m + i, x, count, isWhole);
    }
    if (rest)
      storeRow(rest + i, x, count, isWhole);
  }
}

/// Rows begin … end - 1 of P, at most as many as the block's warps work on.
template <class Element, int kBucket>
__device__ __forceinline__ void projectPass(
    const RowsOfM<Element, ProjectShape<Element, kBucket>::kLength> &source,
    const ElemOf<Element> *q, ElemOf<Element> *p, const MatrixEntry &matrix,
    int64_t begin, int64_t end) {
  using Shape = ProjectShape<Element, kBucket>;
  using T = typename Shape::T;
  constexpr int kLength = Shape::kLength, kRows = Shape::kRows;
  T *chunk = dynamicShared<T>();
  T *sums = chunk + kBucket * Shape::kStride;
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int sharing = matrix.warpsPerRow;
  const int64_t row = begin + warp / sharing * kRows;
  const int rows = static_cast<int>(
      end - row < 0 ? 0 : (end - row < kRows ? end - row : kRows));

  T values[Shape::kValues];
#pragma unroll
  for (int i = 0; i < Shape::kValues; ++i)
    values[i] = 0;
#pragma unroll 1
  for (int64_t first = 0; first < matrix.columns; first += Shape::kColumns) {
    __syncthreads();
    stageAllColumns<Element, Shape::kColumns, kBucket, Shape::kStride>(
        q, matrix.columns, matrix.rank, first, chunk);
    __syncthreads();
#pragma unroll 1
    for (int s = warp % sharing; s < Shape::kSteps; s += sharing) {
      if (first + s * Shape::kStep >= matrix.columns)
        break;
      const int j = s * Shape::kStep + lane * kLength;
      T x[kRows][kLength];
      source.load(opaque(row * matrix.columns + first + j), matrix.columns,
                  rows, matrix.columns - first - j, x);
#pragma unroll
      for (int k = 0; k < kBucket; ++k) {
        const Pack<T, kLength> column =
            loadPack<kLength>(chunk + k * Shape::kStride + j, true);
#pragma unroll
        for (int b = 0; b < kRows; ++b) {
#pragma unroll
          for (int v = 0; v < kLength; ++v)
            values[b * kBucket + k] = multiplyAdd(x[b][v], column.elements[v],
                                                  values[b * kBucket + k]);
        }
      }
    }
  }

  constexpr int kLeft = Shape::kValues >= 32 ? Shape::kValues / 32 : 1;
  const int firstSum = sumOverLanes<Shape::kValues>(values);
  __syncthreads();
  if (isWriterOfSums<Shape::kValues>()) {
#pragma unroll
    for (int i = 0; i < kLeft; ++i)
      sums[warp * Shape::kValues + firstSum + i] = values[i];
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x);
       i < kWarps / sharing * Shape::kValues; i += kThreads) {
    const int group = i / Shape::kValues, value = i % Shape::kValues;
    const int64_t k = value % kBucket;
    const int64_t target = begin + group * kRows + value / kBucket;
    if (target >= end || k >= matrix.rank)
      continue;
    const T *part = sums + group * sharing * Shape::kValues + value;
    T sum = part[0];
    for (int w = 1; w < sharing; ++w)
      sum += part[w * Shape::kValues];
    p[target * matrix.rank + k] = Element::narrow(sum);
  }
}

template <class Element, int kBucket>
__global__ void __launch_bounds__(kThreads,
                                  ProjectShape<Element, kBucket>::kBlocks)
    projectTiles(ProjectArguments<ElemOf<Element>> a) {
  using Elem = ElemOf<Element>;
  using Shape = ProjectShape<Element, kBucket>;
  const Tile tile = a.tiles[blockIdx.x];
  if (tile.matrix < 0)
    return gatherPiece<Element>(a, tile);
  const MatrixEntry matrix = a.matrices[tile.matrix];
  const Elem *g = a.g + matrix.offset;
  const Elem *e = a.e ? a.e + matrix.offset : nullptr;
  Elem *m = a.m ? a.m + matrix.offset : nullptr;
  const RowsOfM<Element, Shape::kLength> source(g, e, m, matrix.columns);
  const int64_t passRows = int64_t(kWarps / matrix.warpsPerRow) * Shape::kRows;
  for (int64_t row = tile.begin; row < tile.end; row += passRows) {
    const int64_t end = row + passRows < tile.end ? row + passRows : tile.end;
    projectPass<Element, kBucket>(source, a.q + matrix.qOffset,
                                  a.p + matrix.pOffset, matrix, row, end);
  }
}

} // namespace

cudaError_t ddphook::cuda::launchProject(const StageLaunch &stage,
                                         const StepArrays &arrays) {
  if (stage.blocks == 0)
    return cudaSuccess;
  return withElement(stage.type, [&](auto element) {
    return withBucket(stage.bucket, [&](auto bucket) {
      using Element = decltype(element);
      using Elem = ElemOf<Element>;
      constexpr int kBucket = decltype(bucket)::value;
      const ProjectArguments<Elem> arguments = {
          stage.matrices,
          stage.pieces,
          stage.tiles,
          static_cast<const Elem *>(arrays.g),
          static_cast<const Elem *>(arrays.e),
          static_cast<const Elem *>(arrays.q),
          static_cast<Elem *>(arrays.m),
          static_cast<Elem *>(arrays.pOut),
          static_cast<Elem *>(arrays.restOut)};
      return launch(stage.stream, stage.blocks, kThreads,
                    ProjectShape<Element, kBucket>::kSharedBytes,
                    projectTiles<Element, kBucket>, arguments);
    });
  });
}
