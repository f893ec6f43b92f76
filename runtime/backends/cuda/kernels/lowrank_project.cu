// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A warp has a few rows of M and processes them in steps, in which each lane
// has 16 bytes of each row. Q is in shared memory, a chunk of steps at a time,
// and a lane uses each number of it that it loads for all its rows. Several
// warps share long rows of small matrices and alternate between steps.
//
// Chunks are copied asynchronously and alternate between two buffers, so that
// one barrier per chunk suffices, and a single one if Q is one chunk. The rows
// of M that a warp needs after the barrier are in flight before it.
//
// The order of additions of an element of P: each lane adds its columns in
// order, then lanes are added by halves, then the warps of the row. The lane of
// a column thus does not depend on where rows start. If they start within 16
// bytes, lanes load and store whole packs that are a few columns further on,
// and pass the sums to the lanes of the columns.
//
// In the L2 cache, M is kept, since it is read twice more; G is not, unless it
// is M.

#include "global_memory.h"
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
  using Elem = ElemOf<Element>;
  static constexpr int kLength = laneColumns(sizeof(T));
  static constexpr int kStep = 32 * kLength;
  static constexpr int kSteps = projectSteps(kBucket);
  static constexpr int kColumns = kSteps * kStep;
  static constexpr int kRows = projectRows(sizeof(T), kBucket);
  static constexpr int kValues = kRows * kBucket;
  // A lane's numbers of Q in a step are adjacent in memory. They are copied in
  // granules of up to 16 bytes; in shared memory, granules with the same
  // position in their lane are adjacent, so that a warp's loads have no bank
  // conflicts. One more between them avoids conflicts for the copies.
  static constexpr int kNumbers = kLength * kBucket;
  static constexpr int kGranule =
      kNumbers < kPackLength<Elem> ? kNumbers : kPackLength<Elem>;
  static constexpr int kGranules = kNumbers / kGranule;
  static constexpr int kStride = kColumns / kLength + 1;
  static constexpr int kBuffer = kGranules * kStride * kGranule;
  // The minimum of blocks per multiprocessor, which bounds the registers.
  static constexpr int kBlocks = kValues <= (sizeof(T) == 8 ? 8 : 32) ? 2 : 1;
  static constexpr int64_t kBufferBytes =
      (2 * kBuffer * int64_t(sizeof(Elem)) + 15) / 16 * 16;
  static constexpr int64_t kSharedBytes =
      kBufferBytes + kWarps * kValues * int64_t(sizeof(T));
};

/// Chunks of Q in shared memory.
template <class Element, int kBucket>
struct ChunksOfQ {
  using Shape = ProjectShape<Element, kBucket>;
  using Elem = ElemOf<Element>;
  static constexpr int kLength = Shape::kLength, kGranule = Shape::kGranule;

  __device__ ChunksOfQ(const Elem *allOfQ, const MatrixEntry *matrices,
                       int number)
      : allOfQ(allOfQ), matrices(matrices), number(number) {}

  __device__ __forceinline__ Elem *bufferOf(int turn) const {
    return dynamicShared<Elem>() + (turn & 1) * Shape::kBuffer;
  }

  /// Starts to copy the columns from `first` on, with zeros up to a whole step.
  __device__ __forceinline__ void stage(int64_t first, int turn) const {
    // Loaded each time, because keeping it would take registers from the sums.
    const MatrixEntry &matrix = matrices[opaque(number)];
    const int rank = static_cast<int>(matrix.rank);
    const int64_t left = matrix.columns - first;
    const int count =
        static_cast<int>(left < Shape::kColumns ? left : Shape::kColumns);
    const Elem *from = allOfQ + matrix.qOffset + first * rank;
    Elem *to = bufferOf(turn);
    const bool isWhole = rank == kBucket && isAlignedForPacks<kGranule>(from);
    const int copied = isWhole ? stageGranules(from, count, to) : 0;
    if (copied < count)
      stageNumbers(from, rank, copied, count, to);
    const int end = (count + Shape::kStep - 1) / Shape::kStep * Shape::kStep;
#pragma unroll 1
    for (int i = count * kBucket + static_cast<int>(threadIdx.x);
         i < end * kBucket; i += kThreads)
      to[placeOf(i / kBucket, i % kBucket)] = Elem(0);
    commitCopies();
  }

  /// Returns granule `i` of a lane's numbers in a step.
  __device__ __forceinline__ Pack<Elem, kGranule> load(int turn, int lane,
                                                       int i) const {
    return loadPack<kGranule>(
        bufferOf(turn) + (i * Shape::kStride + lane) * kGranule, true);
  }

private:
  /// Returns the offset of a number in a buffer.
  static __device__ __forceinline__ int placeOf(int column, int k) {
    const int number = column % kLength * kBucket + k;
    return (number / kGranule * Shape::kStride + column / kLength) * kGranule +
           number % kGranule;
  }

  /// Copies the columns of whole lanes, by granules; returns their number.
  static __device__ __forceinline__ int stageGranules(const Elem *from,
                                                      int count, Elem *to) {
    const int lanes = count / kLength;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < lanes * Shape::kGranules;
         i += kThreads)
      copyToShared<kGranule * sizeof(Elem)>(
          to + (i % Shape::kGranules * Shape::kStride + i / Shape::kGranules) *
                   kGranule,
          from + i * kGranule);
    return lanes * kLength;
  }

  /// Copies the numbers of columns begin … end - 1, one by one.
  static __device__ __forceinline__ void
  stageNumbers(const Elem *from, int rank, int begin, int end, Elem *to) {
#pragma unroll 1
    for (int column = begin + static_cast<int>(threadIdx.x); column < end;
         column += kThreads) {
#pragma unroll 1
      for (int k = 0; k < rank; ++k)
        copyNumber(to + placeOf(column, k), from + column * rank + k);
    }
  }

  const Elem *allOfQ;
  const MatrixEntry *matrices;
  /// The number of the matrix.
  int number;
};

/// The rows of M that a warp processes; with `e`, it computes and stores their
/// sum.
template <class Element, int kRows, int kLength>
struct RowsOfM {
  using Elem = ElemOf<Element>;
  using T = ComputeOf<Element>;

  /// A lane's part of a step: element v of its pack is element v of the row
  /// from `offset` on, or, from `shift` on, the element `back` before that.
  struct LanePart {
    int64_t offset;
    int count;
    int back;
    bool isWhole;
  };

  /// Rows of `columns` elements of the three arrays, from `offset` on.
  __device__ RowsOfM(const Elem *g, const Elem *e, Elem *m, int64_t offset,
                     int64_t columns)
      : g(g), e(e), m(m), columns(columns), shift(shiftOf(g + offset)) {
    if (columns % kLength != 0 ||
        (e && (shiftOf(e + offset) != shift || shiftOf(m + offset) != shift)))
      shift = -1;
  }

  /// Returns the part in the step from `column` on of the row at `start`.
  __device__ __forceinline__ LanePart placeOf(int64_t start,
                                              int64_t column) const {
    const int64_t left = columns - column;
    start += column;
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int offset = lane * kLength;
    const int end = static_cast<int>(left < 32 * kLength ? left : 32 * kLength);
    if (shift <= 0) {
      const int count = end - offset < kLength ? end - offset : kLength;
      return {start + offset, count, 0, shift == 0 && count > 0};
    }
    const int count = offset < end ? kLength : 0;
    return {start + offset + kLength - shift, count, end,
            offset + kLength < end};
  }

  /// Starts to load a step of `rows` rows, but at most kRows, into the L2
  /// cache. Unlike loads, this takes no registers.
  __device__ __forceinline__ void prefetch(int64_t start, int64_t column,
                                           int rows) const {
    column += static_cast<int>(threadIdx.x % 32) * kLength;
    if (column >= columns)
      return;
#pragma unroll 1
    for (int b = 0; b < kRows && b < rows; ++b) {
      const int64_t i = start + b * columns + column;
      prefetchGlobal(g + i);
      if (e)
        prefetchGlobal(e + i);
    }
  }

  /// Starts to load such a step.
  __device__ __forceinline__ void fetch(int64_t start, int64_t column,
                                        int rows) {
    const LanePart place = placeOf(start, column);
    withBool(place.isWhole, [&](auto isWhole) {
      if (e) {
        load<Cache::Stream>(g, place, rows, isWhole, sums);
        load<Cache::Keep>(e, place, rows, isWhole, errors);
      } else {
        load<Cache::Keep>(g, place, rows, isWhole, sums);
      }
    });
  }

  /// Returns the fetched step as each lane's own columns, or zeros.
  __device__ __forceinline__ void take(int64_t start, int64_t column, int rows,
                                       T (&x)[kRows][kLength]) {
    const LanePart place = placeOf(start, column);
    if (e) {
#pragma unroll
      for (int b = 0; b < kRows; ++b) {
#pragma unroll
        for (int v = 0; v < kLength; ++v)
          sums[b].elements[v] =
              addElements<Element>(errors[b].elements[v], sums[b].elements[v]);
      }
      withBool(place.isWhole,
               [&](auto isWhole) { store(place, rows, isWhole); });
    }
#pragma unroll
    for (int b = 0; b < kRows; ++b) {
#pragma unroll
      for (int v = 0; v < kLength; ++v)
        x[b][v] = Element::widen(sums[b].elements[v]);
    }
    if (shift > 0) {
#pragma unroll
      for (int b = 0; b < kRows; ++b)
        turnBack(place, x[b]);
    }
  }

private:
  /// Returns the distance in elements from the last multiple of a pack's bytes.
  static __device__ __forceinline__ int shiftOf(const Elem *p) {
    return static_cast<int>(reinterpret_cast<uintptr_t>(p) / sizeof(Elem) %
                            kLength);
  }

  /// Returns the offset of element v of a pack from the start of the pack.
  __device__ __forceinline__ int elementOf(const LanePart &place, int v) const {
    return v - (v >= shift ? place.back : 0);
  }

  template <Cache kCache, class Bool>
  __device__ __forceinline__ void load(const Elem *from, const LanePart &place,
                                       int rows, Bool,
                                       Pack<Elem, kLength> (&packs)[kRows]) {
#pragma unroll
    for (int b = 0; b < kRows; ++b) {
      packs[b] = {};
      if (b >= rows)
        continue;
      const Elem *row = from + opaque(place.offset + b * columns);
      if constexpr (Bool::value) {
        packs[b] = loadGlobal<kCache, kLength>(row);
      } else {
#pragma unroll
        for (int v = 0; v < kLength; ++v)
          if (v < place.count)
            packs[b].elements[v] =
                loadElement<kCache>(row + elementOf(place, v));
      }
    }
  }

  template <class Bool>
  __device__ __forceinline__ void store(const LanePart &place, int rows, Bool) {
#pragma unroll
    for (int b = 0; b < kRows; ++b) {
      if (b >= rows)
        continue;
      Elem *row = m + opaque(place.offset + b * columns);
      if constexpr (Bool::value) {
        storeGlobal<Cache::Keep>(row, sums[b]);
      } else {
#pragma unroll
        for (int v = 0; v < kLength; ++v)
          if (v < place.count)
            storeElement<Cache::Keep>(row + elementOf(place, v),
                                      sums[b].elements[v]);
      }
    }
  }

  /// Moves columns of packs that are kLength - shift further on to their lanes.
  __device__ __forceinline__ void turnBack(const LanePart &place,
                                           T (&x)[kLength]) const {
    // From `shift` on a pack has columns of the previous lane, or, in the first
    // lane, of the last one's pack. Lanes after the last one have no columns:
    // an infinity there, times a zero of Q, would make the sum a NaN.
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int next = lane > 0 ? lane - 1 : place.back / kLength - 1;
#pragma unroll
    for (int v = 0; v < kLength; ++v) {
      const T other = __shfl_sync(kAllLanes, x[v], next);
      if (v >= shift)
        x[v] = place.count > 0 ? other : T(0);
    }
    // Rotate to the left by `shift` elements.
#pragma unroll
    for (int step = 1; step < kLength; step *= 2) {
      T turned[kLength];
#pragma unroll
      for (int v = 0; v < kLength; ++v)
        turned[v] = shift & step ? x[(v + step) % kLength] : x[v];
#pragma unroll
      for (int v = 0; v < kLength; ++v)
        x[v] = turned[v];
    }
  }

  const Elem *g;
  const Elem *e;
  Elem *m;
  int64_t columns;
  /// shiftOf() of the rows of all arrays; -1 if it differs between them.
  int shift;
  Pack<Elem, kLength> sums[kRows], errors[kRows];
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
    const int end =
        static_cast<int>(tile.end - i < kLength ? tile.end - i : kLength);
    const bool isWhole = isAligned && end == kLength;
    Pack<Elem, kLength> x;
    if (e) {
      x = loadPart<Cache::Stream, kLength>(g + i, 0, end, isWhole);
      const Pack<Elem, kLength> y =
          loadPart<Cache::Keep, kLength>(e + i, 0, end, isWhole);
#pragma unroll
      for (int v = 0; v < kLength; ++v)
        x.elements[v] = addElements<Element>(y.elements[v], x.elements[v]);
      storePart<Cache::Keep>(m + i, x, 0, end, isWhole);
    } else {
      x = loadPart<Cache::Keep, kLength>(g + i, 0, end, isWhole);
    }
    if (rest)
      storePart<Cache::Keep>(rest + i, x, 0, end, isWhole);
  }
}

/// Adds Σ x[b][v]·Q[v][k] to values[b][k], v over a lane's columns in order.
template <class Element, int kBucket, class Chunks, class T, int kRows,
          int kLength>
__device__ __forceinline__ void multiplyStep(const Chunks &chunks, int turn,
                                             int step, T (&x)[kRows][kLength],
                                             T *values) {
  using Shape = ProjectShape<Element, kBucket>;
  const int lane = step * 32 + static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int i = 0; i < Shape::kGranules; ++i) {
    const auto numbers = chunks.load(turn, lane, i);
#pragma unroll
    for (int n = 0; n < Shape::kGranule; ++n) {
      const int number = i * Shape::kGranule + n;
      const int v = number / kBucket, k = number % kBucket;
      const T factor = Element::widen(numbers.elements[n]);
#pragma unroll
      for (int b = 0; b < kRows; ++b)
        values[b * kBucket + k] =
            multiplyAdd(x[b][v], factor, values[b * kBucket + k]);
    }
  }
}

/// Adds the lanes' sums and writes rows begin … end - 1 of P.
template <class Element, int kBucket, class T>
__device__ __forceinline__ void writeRows(T *values, ElemOf<Element> *p,
                                          const MatrixEntry &matrix,
                                          int64_t begin, int64_t end) {
  using Shape = ProjectShape<Element, kBucket>;
  constexpr int kLeft = Shape::kValues >= 32 ? Shape::kValues / 32 : 1;
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int sharing = matrix.warpsPerRow;
  const int firstSum = sumOverLanes<Shape::kValues>(values);
  const bool isWriter = isWriterOfSums<Shape::kValues>();
  auto write = [&](int group, int value, T sum) {
    const int64_t row = begin + group * Shape::kRows + value / kBucket;
    const int64_t k = value % kBucket;
    if (row < end && k < matrix.rank)
      storeElement<Cache::Keep>(p + row * matrix.rank + k,
                                Element::narrow(sum));
  };
  if (sharing == 1) {
    if (isWriter) {
#pragma unroll
      for (int i = 0; i < kLeft; ++i)
        write(warp, firstSum + i, values[i]);
    }
    return;
  }
  T *sums = reinterpret_cast<T *>(dynamicShared<unsigned char>() +
                                  Shape::kBufferBytes);
  // Others may still read the sums of the previous rows.
  __syncthreads();
  if (isWriter) {
#pragma unroll
    for (int i = 0; i < kLeft; ++i)
      sums[warp * Shape::kValues + firstSum + i] = values[i];
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x);
       i < kWarps / sharing * Shape::kValues; i += kThreads) {
    const int group = i / Shape::kValues, value = i % Shape::kValues;
    const T *part = sums + group * sharing * Shape::kValues + value;
    T sum = part[0];
    for (int w = 1; w < sharing; ++w)
      sum += part[w * Shape::kValues];
    write(group, value, sum);
  }
}

template <class Element, int kBucket>
__global__ void __launch_bounds__(kThreads,
                                  ProjectShape<Element, kBucket>::kBlocks)
    projectTiles(ProjectArguments<ElemOf<Element>> a) {
  using Shape = ProjectShape<Element, kBucket>;
  using T = typename Shape::T;
  constexpr int kLength = Shape::kLength, kRows = Shape::kRows;
  const Tile tile = a.tiles[blockIdx.x];
  if (tile.matrix < 0)
    return gatherPiece<Element>(a, tile);
  const MatrixEntry &matrix = a.matrices[tile.matrix];
  const int64_t columns = matrix.columns;
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int sharing = matrix.warpsPerRow;
  const int passRows = kWarps / sharing * kRows;
  const int tileRows = static_cast<int>(tile.end - tile.begin);
  const bool isOneChunk = columns <= Shape::kColumns;
  RowsOfM<Element, kRows, kLength> source(a.g, a.e, a.m, matrix.offset,
                                          columns);
  const ChunksOfQ<Element, kBucket> chunks(a.q, a.matrices, tile.matrix);

  int turn = 0;
  chunks.stage(0, turn);
#pragma unroll 1
  for (int begin = 0; begin < tileRows; begin += passRows) {
    const int row = begin + warp / sharing * kRows;
    const int rows = tileRows - row;
    const int64_t start = matrix.offset + (tile.begin + row) * columns;
    T values[Shape::kValues];
#pragma unroll
    for (int i = 0; i < Shape::kValues; ++i)
      values[i] = 0;
#pragma unroll 1
    for (int64_t first = 0; first < columns; first += Shape::kColumns) {
      int step = warp % sharing;
      source.prefetch(start, first + step * Shape::kStep, rows);
      if (!isOneChunk || begin == 0) {
        waitForCopies<0>();
        // All warps have finished the previous chunk, whose buffer is reused.
        __syncthreads();
      }
#pragma unroll 1
      for (; step < Shape::kSteps && first + step * Shape::kStep < columns;
           step += sharing) {
        source.fetch(start, first + step * Shape::kStep, rows);
        T x[kRows][kLength];
        source.take(start, first + step * Shape::kStep, rows, x);
        multiplyStep<Element, kBucket>(chunks, turn, step, x, values);
      }
      // The next chunk is in the L2 cache, so it arrives before the rows of M.
      const bool isLast = first + Shape::kColumns >= columns;
      if (!isOneChunk && (!isLast || begin + passRows < tileRows))
        chunks.stage(isLast ? 0 : first + Shape::kColumns, turn + 1);
      turn += !isOneChunk;
    }
    writeRows<Element, kBucket>(values, a.p + matrix.pOffset, matrix,
                                tile.begin + begin, tile.end);
  }
}

} // namespace

cudaError_t ddphook::cuda::allowProjectShared(Dtype type, int bucket) {
  return withElement(type, [&](auto element) {
    return withBucket(bucket, [&](auto width) {
      using Element = decltype(element);
      constexpr int kBucket = decltype(width)::value;
      return cudaFuncSetAttribute(
          projectTiles<Element, kBucket>,
          cudaFuncAttributeMaxDynamicSharedMemorySize,
          static_cast<int>(ProjectShape<Element, kBucket>::kSharedBytes));
    });
  });
}

cudaError_t ddphook::cuda::launchProject(const StageLaunch &stage,
                                         const StepArrays &arrays) {
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
