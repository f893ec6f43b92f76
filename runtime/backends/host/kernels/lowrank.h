// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The arithmetic of low-rank compression on one matrix M (rows x columns) and
// its factors P (rows x rank) and Q (columns x rank), all row-major.
// ../matrix_list.h handles lists of matrices.
//
// The conventions of kernels.h apply. In addition:
// - f32 and f64 are computed in their own type, 16-bit types in f32 with one
//   rounding per element of a product.
// - The order of additions depends only on the sizes, so the bits are the same
//   on every instruction set that has a fused multiply-add. All ranks compute
//   P·Qᵀ and orthogonal factors themselves and must not drift apart.
// - A row of P or P·Qᵀ depends only on the same row of M or P: computing some
//   rows gives the same bits as computing all.
// - Any size may be 0, and the rank may exceed the numbers of rows and columns.
// - `scratch` is memory of at least lowRankScratchBytes() bytes, aligned to 64,
//   with arbitrary contents.
// - Arrays must not overlap unless stated otherwise.

#pragma once

#include "kernels.h"

#include <cstdint>
#include <optional>

namespace ddphook::host {

/// The sizes of a matrix and its factors; each at least 0.
struct LowRankShape {
  int64_t rows;
  int64_t columns;
  int64_t rank;
};

/// Returns the bytes of scratch that the functions below need; nullopt if they
/// exceed 2^62.
std::optional<int64_t> lowRankScratchBytes(Dtype type,
                                           const LowRankShape &shape);

/// Computes m = g + e and P = M·Q. If `e` and `m` are null, M is `g`. `m` may
/// equal `g` or `e`. One pass gives the same bits as two.
void projectMatrix(Dtype type, const LowRankShape &shape, const void *g,
                   const void *e, const void *q, void *m, void *p,
                   void *scratch);

/// Computes Q = Mᵀ·P. Reads M from its last rows to its first, because the
/// previous pass left the last rows in the caches.
void multiplyTransposed(Dtype type, const LowRankShape &shape,
                        const void *matrix, const void *p, void *q,
                        void *scratch);

/// Computes out = P·Qᵀ and err = m - out / divisor, each rounded; only the
/// first if `m` and `err` are null. `err` may equal `m`. One pass gives the
/// same bits as three. `stores` says how `out` is written.
void reconstructMatrix(Dtype type, const LowRankShape &shape, const void *p,
                       const void *q, const void *m, void *out, void *err,
                       int64_t divisor, void *scratch,
                       Stores stores = Stores::Cached);

/// Makes the columns of a factor (rows x rank) orthonormal. `out` may equal
/// `in`.
///
/// Rank 1 and 2, and 16-bit types of any rank, use modified Gram-Schmidt as
/// PyTorch writes it. From the first column to the last: divide it by its norm
/// (plus `epsilon` if that is not 0), then subtract its projection from each
/// later column. In 16-bit types every element-wise operation is rounded, and
/// so are norms and sums, which are accumulated in f32.
///
/// `replaced` selects columns that become a unit vector instead: the one
/// farthest from the columns before it, made orthogonal to them. With
/// DDPHOOK_UNIT_COLUMNS, these are columns whose divisor is 0, which would
/// become NaN or infinite. With DDPHOOK_INDEPENDENT_COLUMNS, these are columns
/// of whose norm the projections leave at most the fraction dependentPart().
///
/// Other ranks of f32 and f64 use the Q of a Householder QR with LAPACK's
/// signs; `epsilon` has no effect. A column that is zero below its pivot is not
/// reflected.
///
/// Columns beyond the number of rows have no direction left and become zero;
/// PyTorch refuses such a matrix.
///
/// Needs the scratch of a matrix with as many rows or columns.
void orthogonalizeFactor(Dtype type, int64_t rows, int64_t rank, const void *in,
                         void *out, double epsilon, void *scratch,
                         int32_t replaced = 0);

} // namespace ddphook::host
