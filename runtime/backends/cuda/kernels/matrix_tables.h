// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A matrix list's tables. Every stage of low-rank compression is one launch for
// all matrices: a table maps its blocks to tiles, and a tile is a part of a
// matrix or of a piece of the rest. The tables are made once, on the host, and
// depend only on shapes and element type; so does the order of additions.
//
// Nothing here launches or allocates on a device.

#pragma once

#include "base/dtype.h"
#include "ddphook/runtime/backend.h"
#include "elements.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace ddphook::cuda {

/// Threads and warps of a block in all stages except orthogonalize.
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

/// The highest rank for our own product kernels; above it cuBLAS is used.
constexpr int kMaxBucket = 32;

/// Returns the kernels' width for a list: the smallest of 1, 2, 4, …, 32 that
/// is not less than its largest rank.
int bucketOf(int64_t largestRank);

/// Returns the bytes of a number in the computation type.
constexpr int computeSize(Dtype type) { return type == Dtype::F64 ? 8 : 4; }

/// Returns a thread's columns when a warp loads a row: 16 bytes of numbers.
constexpr int laneColumns(int computeBytes) { return 16 / computeBytes; }

// P = M·Q. A warp processes several rows at a time; in a step its lanes load a
// part of each row at once. Q is kept in shared memory for a few steps.
constexpr int projectRows(int computeBytes, int bucket) {
  return bucket < 16 ? 4 : bucket == 16 ? 16 / computeBytes : 8 / computeBytes;
}
constexpr int projectSteps(int bucket) { return bucket <= 8 ? 8 : 64 / bucket; }

// Q = Mᵀ·P. A warp processes a panel of columns; the accumulators of a thread,
// its columns times the bucket, take at most 64 registers.
constexpr int transposedColumns(int computeBytes, int bucket) {
  return bucket == 32 ? 8 / computeBytes : laneColumns(computeBytes);
}
/// Ranges of rows are multiples of this.
constexpr int kTransposedRows = 64;

// M = P·Qᵀ. Each warp of a block processes kReconstructRows rows at a time.
constexpr int kReconstructRows = 4;

// Orthonormal columns of tall factors: f32 factors with enough work for many
// blocks.
bool isTall(Dtype type, int64_t rows, int64_t rank);
constexpr int64_t kNotTall = -1;
/// Returns the rows of a tile of a factor, so that there are at most 64 tiles,
/// because every block reads the sums of all of them.
DDPHOOK_HOST_DEVICE constexpr int64_t gramTileRows(int64_t rows) {
  return rows <= 64 * 256 ? 256 : (rows + 63) / 64;
}
DDPHOOK_HOST_DEVICE constexpr int64_t gramTiles(int64_t rows) {
  return (rows + gramTileRows(rows) - 1) / gramTileRows(rows);
}
/// Returns the elements of half a Gram matrix with its diagonal.
DDPHOOK_HOST_DEVICE constexpr int pairsOf(int rank) {
  return rank * (rank + 1) / 2;
}

/// A matrix, with offsets in elements.
struct MatrixEntry {
  int64_t offset;
  int64_t pOffset;
  int64_t qOffset;
  int64_t rows;
  int64_t columns;
  int64_t rank;
  /// Warps that share a row in P = M·Q; a power of two.
  int32_t warpsPerRow;
  /// Ranges of rows in Q = Mᵀ·P, and the offset of their partial sums.
  int32_t splits;
  int64_t partialOffset;
  /// The offset of orthogonalize's copy, if it is not in shared memory.
  int64_t workOffset;
  /// Offsets in scratch memory of the data of Q, and of P, as a tall factor;
  /// kNotTall if it is not tall.
  int64_t gramOffset[2];
  /// The matrices whose Q, and whose P, the block with this entry's number
  /// orthogonalizes: the factors that take longest come first.
  int32_t factorInTurn[2];
};

/// A matrix whose products cuBLAS computes is a piece that is not in the rest.
constexpr int64_t kNotInRest = -1;

/// A part of matrix number `matrix`: rows begin … end - 1 of a panel of columns
/// that starts at `column`, which is negative if the panel starts before the
/// matrix. If `matrix` is negative, a part of piece number -1 - matrix:
/// elements begin … end - 1.
struct Tile {
  int64_t begin;
  int64_t end;
  int64_t column;
  int32_t matrix;
  int32_t split;
};

/// The tiles of a stage: those of matrices, then of pieces, then of wide
/// matrices.
struct StageTiles {
  std::vector<Tile> tiles;
  int64_t matrixTiles = 0;
  int64_t listTiles = 0;
};

struct MatrixTables {
  /// All matrices, and those whose rank exceeds kMaxBucket.
  std::vector<MatrixEntry> matrices;
  std::vector<MatrixEntry> wide;
  /// The pieces of the rest, then the wide matrices.
  std::vector<ddphook_piece_t> pieces;
  StageTiles project, transposed, sum, reconstruct;
  /// Tiles of the tall factors Q, and P.
  StageTiles gram[2];
  /// Without the wide matrices.
  int bucket = 1;
  int64_t largestRank = 0;
  /// The largest number of rows of a factor that has columns.
  int64_t largestFactorRows = 0;
  /// Scratch memory of each kind, in numbers of the computation type.
  int64_t partials = 0;
  int64_t work = 0;
  /// Scratch memory in f64 numbers.
  int64_t grams = 0;
};

/// Returns the numbers of scratch that orthogonalize needs for a factor of that
/// shape: its columns, `rows | 1` numbers apart, and as many scalars.
std::optional<int64_t> orthogonalizeWork(int64_t rows, int64_t rank);

/// Returns the tables of a list; nullopt if its scratch memory would exceed any
/// memory. Factors that take up to `sharedBytes` in orthogonalize need none.
std::optional<MatrixTables> makeMatrixTables(const ddphook_matrix_list_t &list,
                                             Dtype type, int64_t sharedBytes);

} // namespace ddphook::cuda
