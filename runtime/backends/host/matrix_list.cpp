// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Cuts matrices into parts so that all threads stay busy until the end. The
// first and last passes of a step go forwards and the one between them
// backwards, so that each starts with data that is still in the caches.

#include "matrix_list.h"

#include "host_memory.h"
#include "kernels.h"
#include "lowrank.h"

#include <algorithm>
#include <cmath>

using namespace ddphook;
using namespace ddphook::host;
using Order = ThreadPool::Order;

/// From this size on, arrays that are written but not read here bypass the
/// caches. That avoids reading them first and leaves the caches to M.
static constexpr int64_t kStreamingBytes = int64_t(2) << 20;

static double elementsOf(const ddphook_matrix_t &matrix) {
  return static_cast<double>(matrix.rows) * static_cast<double>(matrix.columns);
}

static LowRankShape shapeOf(const ddphook_matrix_t &matrix) {
  return {matrix.rows, matrix.columns, matrix.rank};
}

MatrixList::MatrixList(const ddphook_matrix_list_t &list, Dtype dtype,
                       ThreadPool &pool)
    : dtype(dtype), bucketBytes((list.end - list.begin) * dtypeSize(dtype)),
      matrices(list.matrices, list.matrices + list.matrix_count),
      pieces(list.pieces, list.pieces + list.piece_count), pool(pool) {}

MatrixList::~MatrixList() {
  if (scratch)
    freeMemory(scratch, scratchBytes);
  if (partial)
    freeMemory(partial, partialBytes);
}

Status MatrixList::create(const ddphook_matrix_list_t &list, Dtype dtype,
                          ThreadPool &pool,
                          std::unique_ptr<MatrixList> *result) {
  std::unique_ptr<MatrixList> created(new MatrixList(list, dtype, pool));
  DDPHOOK_TRY(created->allocateScratch());
  DDPHOOK_TRY(created->makeBlocks());
  created->makeParts();
  *result = std::move(created);
  return Status::ok();
}

Status MatrixList::allocateScratch() {
  for (const ddphook_matrix_t &matrix : matrices) {
    std::optional<int64_t> bytes = lowRankScratchBytes(dtype, shapeOf(matrix));
    if (!bytes)
      return Status(DDPHOOK_RESOURCE_EXHAUSTED,
                    concat("expected memory for a matrix of ", matrix.rows,
                           " x ", matrix.columns, " of rank ", matrix.rank,
                           ", but its factors are too large"));
    slotBytes = std::max(slotBytes, static_cast<uint64_t>(*bytes));
  }
  // Keep threads off each other's cache lines.
  slotBytes = (slotBytes + 127) / 128 * 128;
  if (__builtin_mul_overflow(slotBytes, static_cast<uint64_t>(pool.threads()),
                             &scratchBytes))
    scratchBytes = UINT64_MAX / 2; // more than any machine has
  return allocateMemory(scratchBytes, 128, &scratch);
}

/// Cuts large matrices into blocks of rows; Q is the sum of the blocks'
/// products. A thread then reads the rows that it wrote from its own caches.
/// The cut determines the order of additions, so it must not depend on the
/// number of threads or on the other matrices of the list. 16-bit types are not
/// cut: they would be rounded once per block.
Status MatrixList::makeBlocks() {
  constexpr int64_t leastRows = 96;
  // A sixteenth of a 25 MiB bucket.
  constexpr double blockElements = 409600, mostBlocks = 16;
  int64_t numbers = 0;
  for (const ddphook_matrix_t &one : matrices) {
    Blocks blocks = {std::max<int64_t>(one.rows, 1), 1, numbers};
    const double wanted =
        std::min(std::ceil(elementsOf(one) / blockElements), mostBlocks);
    if (!isHalf(dtype) && wanted > 1) {
      const auto rows = static_cast<int64_t>(
          std::ceil(static_cast<double>(one.rows) / wanted));
      blocks.rows = std::max(leastRows, (rows + 47) / 48 * 48);
      blocks.count = (one.rows + blocks.rows - 1) / blocks.rows;
      numbers += (blocks.count - 1) * one.columns * one.rank;
    }
    blocksOf.push_back(blocks);
  }
  if (numbers == 0)
    return Status::ok();
  partialBytes = static_cast<uint64_t>(numbers * dtypeSize(dtype));
  return allocateMemory(partialBytes, 64, &partial);
}

void *MatrixList::scratchOf(int slot) const {
  return static_cast<char *>(scratch) + slotBytes * static_cast<uint64_t>(slot);
}

namespace {

/// Cuts a sequence of items into parts of about equal work. The same fraction
/// of two sequences is the same fraction of their parts, so that a thread finds
/// in its caches what another pass left. One thread has one part.
class Cutter {
public:
  /// Threads differ in speed; several parts each let them finish together.
  Cutter(double allWork, int threads, int partsPerThread,
         std::vector<std::vector<MatrixList::Range>> *parts)
      : parts(*parts) {
    // The least work worth waking a thread for, in multiply-adds or elements.
    constexpr double leastWork = 32768;
    double count = 1;
    if (threads > 1)
      count = std::clamp(
          std::floor(allWork / leastWork), 1.0,
          std::min<double>(threads * partsPerThread, ThreadPool::kMaxParts));
    parts->resize(static_cast<size_t>(count));
    partWork = std::max(allWork / count, 1.0);
  }

  /// Adds `length` rows of `rowWork` each; they are cut at multiples of `unit`
  /// if there are several parts.
  void add(size_t index, int64_t length, double rowWork, int64_t unit) {
    if (length == 0)
      return;
    const double work = static_cast<double>(length) * rowWork;
    int64_t step = length;
    if (parts.size() > 1 && work > partWork) {
      const auto pieces = static_cast<int64_t>(std::ceil(work / partWork));
      step = (length / pieces + unit) / unit * unit;
    }
    addBlocks(index, length, rowWork, step);
  }

  /// The same with blocks of `step` rows; without rows, one empty block.
  void addBlocks(size_t index, int64_t length, double rowWork, int64_t step) {
    for (int64_t begin = 0; begin == 0 || begin < length; begin += step) {
      const int64_t end = std::min(length, begin + step);
      const double here = static_cast<double>(end - begin) * rowWork;
      const auto part = static_cast<size_t>((before + here / 2) / partWork);
      parts[std::min(part, parts.size() - 1)].push_back({index, begin, end});
      before += here;
    }
  }

private:
  std::vector<std::vector<MatrixList::Range>> &parts;
  double partWork = 0, before = 0;
};

} // namespace

/// Cuts rows at multiples of the number of rows that kernels process together.
void MatrixList::makeParts() {
  constexpr int64_t rowUnit = 12, pieceUnit = 1024;
  auto reflections = [](const ddphook_matrix_t &one) {
    const auto rank = static_cast<double>(one.rank);
    return static_cast<double>(std::max(one.rows, one.columns)) * rank * rank;
  };
  double elements = 0, orthogonal = 0, rest = 0;
  for (const ddphook_matrix_t &one : matrices) {
    elements += elementsOf(one);
    orthogonal += reflections(one);
  }
  for (const ddphook_piece_t &piece : pieces)
    rest += static_cast<double>(piece.count);
  const int threads = pool.threads();
  Cutter rows(elements, threads, 8, &rowParts),
      blocks(elements, threads, 8, &blockParts),
      factors(orthogonal, threads, 8, &matrixParts),
      others(rest, threads, 8, &pieceParts);
  for (size_t i = 0; i < matrices.size(); ++i) {
    const ddphook_matrix_t &one = matrices[i];
    rows.add(i, one.rows, static_cast<double>(one.columns), rowUnit);
    blocks.addBlocks(i, one.rows, static_cast<double>(one.columns),
                     blocksOf[i].rows);
    factors.add(i, 1, reflections(one), 1);
  }
  for (size_t i = 0; i < pieces.size(); ++i)
    others.add(i, pieces[i].count, 1, pieceUnit);
}

/// Calls fn(range, scratch) for all ranges of all parts.
template <class Fn>
void MatrixList::forParts(const Parts &parts, Order order, const Fn &fn) const {
  auto run = [&](int64_t number, int slot) {
    const std::vector<Range> &part = parts[number];
    const size_t count = part.size();
    for (size_t i = 0; i < count; ++i)
      fn(part[order == Order::Forwards ? i : count - 1 - i], scratchOf(slot));
  };
  pool.run(static_cast<int64_t>(parts.size()), run, order);
}

/// Returns the rows of a range as a separate matrix.
static ddphook_matrix_t someRows(ddphook_matrix_t matrix, int64_t begin,
                                 int64_t end) {
  matrix.offset += begin * matrix.columns;
  matrix.p_offset += begin * matrix.rank;
  matrix.rows = end - begin;
  return matrix;
}

/// Computes Q = Mᵀ·P: sums each block of rows, then adds these sums from the
/// last block to the first.
void MatrixList::multiplyQ(void *matrix, void *p, void *q) const {
  forParts(blockParts, Order::Backwards, [&](const Range &range, void *memory) {
    const ddphook_matrix_t one =
        someRows(matrices[range.index], range.begin, range.end);
    const Blocks &blocks = blocksOf[range.index];
    void *sums = elementAt(q, dtype, one.q_offset);
    if (const int64_t number = range.begin / blocks.rows; number > 0)
      sums = elementAt(partial, dtype,
                       blocks.offset + (number - 1) * one.columns * one.rank);
    multiplyTransposed(dtype, shapeOf(one),
                       elementAt(matrix, dtype, one.offset),
                       elementAt(p, dtype, one.p_offset), sums, memory);
  });
  if (!partial)
    return;
  forParts(matrixParts, Order::Forwards, [&](const Range &range, void *) {
    const ddphook_matrix_t &one = matrices[range.index];
    const Blocks &blocks = blocksOf[range.index];
    const int64_t count = one.columns * one.rank;
    auto sumsOf = [&](int64_t block) {
      return block == 0 ? elementAt(q, dtype, one.q_offset)
                        : elementAt(partial, dtype,
                                    blocks.offset + (block - 1) * count);
    };
    for (int64_t block = blocks.count - 1; block > 0; --block)
      addArrays(sumsOf(block - 1), sumsOf(block), sumsOf(block - 1), dtype,
                count);
  });
}

void MatrixList::matmul(ddphook_matmul_kind_t kind, void *matrix, void *p,
                        void *q) const {
  if (kind == DDPHOOK_MATMUL_Q)
    return multiplyQ(matrix, p, q);
  forParts(rowParts, Order::Forwards, [&](const Range &range, void *memory) {
    const ddphook_matrix_t one =
        someRows(matrices[range.index], range.begin, range.end);
    void *m = elementAt(matrix, dtype, one.offset);
    void *left = elementAt(p, dtype, one.p_offset);
    void *right = elementAt(q, dtype, one.q_offset);
    if (kind == DDPHOOK_MATMUL_P)
      projectMatrix(dtype, shapeOf(one), m, nullptr, right, nullptr, left,
                    memory);
    else
      reconstructMatrix(dtype, shapeOf(one), left, right, nullptr, m, nullptr,
                        1, memory);
  });
}

void MatrixList::orthogonalize(int32_t factor, const void *in, void *out,
                               double epsilon) const {
  const bool isP = (factor & DDPHOOK_FACTOR_Q) == 0;
  forParts(matrixParts, Order::Forwards, [&](const Range &range, void *memory) {
    const ddphook_matrix_t &one = matrices[range.index];
    const int64_t offset = isP ? one.p_offset : one.q_offset;
    orthogonalizeFactor(dtype, isP ? one.rows : one.columns, one.rank,
                        elementAt(in, dtype, offset),
                        elementAt(out, dtype, offset), epsilon, memory,
                        factor & ~DDPHOOK_FACTOR_Q);
  });
}

void MatrixList::projectPiece(const Range &range, const void *g, const void *e,
                              void *m, void *rest) const {
  const ddphook_piece_t &piece = pieces[range.index];
  const int64_t offset = piece.offset + range.begin;
  const int64_t count = range.end - range.begin;
  const void *from = elementAt(g, dtype, offset);
  if (e) {
    void *sum = elementAt(m, dtype, offset);
    addArrays(sum, from, elementAt(e, dtype, offset), dtype, count);
    from = sum;
  }
  copyBytes(elementAt(rest, dtype, piece.rest_offset + range.begin), from,
            count * dtypeSize(dtype));
}

void MatrixList::project(const void *g, const void *e, const void *q, void *m,
                         void *p, void *rest) const {
  forParts(rowParts, Order::Forwards, [&](const Range &range, void *memory) {
    const ddphook_matrix_t one =
        someRows(matrices[range.index], range.begin, range.end);
    projectMatrix(dtype, shapeOf(one), elementAt(g, dtype, one.offset),
                  elementAt(e, dtype, one.offset),
                  elementAt(q, dtype, one.q_offset),
                  elementAt(m, dtype, one.offset),
                  elementAt(p, dtype, one.p_offset), memory);
  });
  forParts(pieceParts, Order::Forwards, [&](const Range &range, void *) {
    projectPiece(range, g, e, m, rest);
  });
}

void MatrixList::reconstructPiece(const Range &range, const void *rest,
                                  const void *m, void *out, void *err,
                                  int64_t divisor) const {
  const ddphook_piece_t &piece = pieces[range.index];
  const int64_t offset = piece.offset + range.begin;
  const int64_t count = range.end - range.begin;
  const void *from = elementAt(rest, dtype, piece.rest_offset + range.begin);
  void *to = elementAt(out, dtype, offset);
  if (err) {
    // `out` holds the quotient until the error has been computed from it.
    divideArray(from, to, dtype, count, divisor);
    subtractArrays(elementAt(err, dtype, offset), elementAt(m, dtype, offset),
                   to, dtype, count);
  }
  copyBytes(to, from, count * dtypeSize(dtype));
}

void MatrixList::reconstruct(const void *p, const void *q, const void *rest,
                             const void *m, void *out, void *err,
                             int64_t divisor) const {
  const Stores stores =
      bucketBytes >= kStreamingBytes ? Stores::Streaming : Stores::Cached;
  forParts(rowParts, Order::Forwards, [&](const Range &range, void *memory) {
    const ddphook_matrix_t one =
        someRows(matrices[range.index], range.begin, range.end);
    reconstructMatrix(
        dtype, shapeOf(one), elementAt(p, dtype, one.p_offset),
        elementAt(q, dtype, one.q_offset), elementAt(m, dtype, one.offset),
        elementAt(out, dtype, one.offset), elementAt(err, dtype, one.offset),
        divisor, memory, stores);
  });
  forParts(pieceParts, Order::Forwards, [&](const Range &range, void *) {
    reconstructPiece(range, rest, m, out, err, divisor);
  });
}
