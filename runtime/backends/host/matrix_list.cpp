//===- matrix_list.cpp - low-rank calls on lists of matrices --------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Goes through the matrices, one after the other: the first and the last pass
// of a step forwards, the one between them backwards, so that each begins with
// what the one before left in the caches.
//
//===----------------------------------------------------------------------===//
#include "matrix_list.h"

#include "host_memory.h"
#include "kernels.h"
#include "lowrank.h"

#include <algorithm>

using namespace ddphook;
using namespace ddphook::host;

/// From this size on, what is written and not read here bypasses the caches:
/// that spares reading it first, and leaves them to M.
static constexpr int64_t kStreamingBytes = int64_t(2) << 20;

static LowRankShape shapeOf(const ddphook_matrix_t &matrix) {
  return {matrix.rows, matrix.columns, matrix.rank};
}

/// The address of an element; of nothing, when there is no array.
static const void *at(const void *array, Dtype dtype, int64_t offset) {
  return array ? static_cast<const char *>(array) + offset * dtypeSize(dtype)
               : nullptr;
}
static void *at(void *array, Dtype dtype, int64_t offset) {
  return array ? static_cast<char *>(array) + offset * dtypeSize(dtype)
               : nullptr;
}

MatrixList::MatrixList(const ddphook_matrix_list_t &list, Dtype dtype)
    : dtype(dtype), bucketBytes((list.end - list.begin) * dtypeSize(dtype)),
      matrices(list.matrices, list.matrices + list.matrix_count),
      pieces(list.pieces, list.pieces + list.piece_count) {}

MatrixList::~MatrixList() {
  if (scratch)
    freeMemory(scratch, scratchBytes);
}

Status MatrixList::create(const ddphook_matrix_list_t &list, Dtype dtype,
                          std::unique_ptr<MatrixList> *result) {
  std::unique_ptr<MatrixList> created(new MatrixList(list, dtype));
  DDPHOOK_RETURN_IF_ERROR(created->allocateScratch());
  *result = std::move(created);
  return Status::ok();
}

Status MatrixList::allocateScratch() {
  for (const ddphook_matrix_t &matrix : matrices) {
    std::optional<int64_t> bytes = lowRankScratchBytes(dtype, shapeOf(matrix));
    if (!bytes)
      return error(DDPHOOK_RESOURCE_EXHAUSTED,
                   "expected memory for a matrix of %lld x %lld of rank %lld, "
                   "but its factors are too large",
                   static_cast<long long>(matrix.rows),
                   static_cast<long long>(matrix.columns),
                   static_cast<long long>(matrix.rank));
    scratchBytes = std::max(scratchBytes, static_cast<uint64_t>(*bytes));
  }
  return allocateMemory(scratchBytes, 64, &scratch);
}

void MatrixList::matmul(ddphook_matmul_kind_t kind, void *matrix, void *p,
                        void *q) const {
  auto run = [&](const ddphook_matrix_t &one) {
    void *m = at(matrix, dtype, one.offset);
    void *left = at(p, dtype, one.p_offset);
    void *right = at(q, dtype, one.q_offset);
    switch (kind) {
    case DDPHOOK_MATMUL_P:
      return projectMatrix(dtype, shapeOf(one), m, nullptr, right, nullptr,
                           left, scratch);
    case DDPHOOK_MATMUL_Q:
      return multiplyTransposed(dtype, shapeOf(one), m, left, right, scratch);
    case DDPHOOK_MATMUL_M:
      return reconstructMatrix(dtype, shapeOf(one), left, right, nullptr, m,
                               nullptr, 1, scratch);
    }
  };
  if (kind == DDPHOOK_MATMUL_Q)
    std::for_each(matrices.rbegin(), matrices.rend(), run);
  else
    std::for_each(matrices.begin(), matrices.end(), run);
}

void MatrixList::orthogonalize(ddphook_factor_t factor, const void *in,
                               void *out, double epsilon,
                               bool unitColumns) const {
  const bool isP = factor == DDPHOOK_FACTOR_P;
  for (const ddphook_matrix_t &one : matrices) {
    const int64_t offset = isP ? one.p_offset : one.q_offset;
    orthogonalizeFactor(dtype, isP ? one.rows : one.columns, one.rank,
                        at(in, dtype, offset), at(out, dtype, offset), epsilon,
                        scratch, unitColumns);
  }
}

void MatrixList::project(const void *g, const void *e, const void *q, void *m,
                         void *p, void *rest) const {
  for (const ddphook_matrix_t &one : matrices)
    projectMatrix(dtype, shapeOf(one), at(g, dtype, one.offset),
                  at(e, dtype, one.offset), at(q, dtype, one.q_offset),
                  at(m, dtype, one.offset), at(p, dtype, one.p_offset),
                  scratch);
  for (const ddphook_piece_t &piece : pieces) {
    const void *from = at(g, dtype, piece.offset);
    if (e) {
      void *sum = at(m, dtype, piece.offset);
      addArrays(sum, from, at(e, dtype, piece.offset), dtype, piece.count);
      from = sum;
    }
    copyBytes(at(rest, dtype, piece.rest_offset), from,
              piece.count * dtypeSize(dtype));
  }
}

void MatrixList::reconstruct(const void *p, const void *q, const void *rest,
                             const void *m, void *out, void *err,
                             int64_t divisor) const {
  const Stores stores =
      bucketBytes >= kStreamingBytes ? Stores::Streaming : Stores::Cached;
  for (const ddphook_matrix_t &one : matrices)
    reconstructMatrix(dtype, shapeOf(one), at(p, dtype, one.p_offset),
                      at(q, dtype, one.q_offset), at(m, dtype, one.offset),
                      at(out, dtype, one.offset), at(err, dtype, one.offset),
                      divisor, scratch, stores);
  for (const ddphook_piece_t &piece : pieces) {
    const void *from = at(rest, dtype, piece.rest_offset);
    void *to = at(out, dtype, piece.offset);
    if (err) {
      // `out` holds the quotient until the error was computed with it.
      divideArray(from, to, dtype, piece.count, divisor);
      subtractArrays(at(err, dtype, piece.offset), at(m, dtype, piece.offset),
                     to, dtype, piece.count);
    }
    copyBytes(to, from, piece.count * dtypeSize(dtype));
  }
}
