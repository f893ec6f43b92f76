// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Implements a matrix list of backend.h on the host: the matrices and the
// scratch memory of the kernels. compiled.h has the contracts of the calls. The
// bits do not depend on the number of threads.

#pragma once

#include "base/dtype.h"
#include "base/status.h"
#include "ddphook/runtime/backend.h"
#include "thread_pool.h"

#include <memory>
#include <vector>

namespace ddphook::host {

class MatrixList {
public:
  /// Rows of a matrix, or elements of a piece.
  struct Range {
    size_t index;
    int64_t begin, end;
  };

  /// RESOURCE_EXHAUSTED: no memory for scratch. The pool must outlive the list.
  static Status create(const ddphook_matrix_list_t &list, Dtype dtype,
                       ThreadPool &pool, std::unique_ptr<MatrixList> *result);
  ~MatrixList();
  MatrixList(const MatrixList &) = delete;
  MatrixList &operator=(const MatrixList &) = delete;

  void matmul(ddphook_matmul_kind_t kind, void *matrix, void *p, void *q) const;
  /// `factor` holds bits of ddphook_factor_t.
  void orthogonalize(int32_t factor, const void *in, void *out,
                     double epsilon) const;
  void project(const void *g, const void *e, const void *q, void *m, void *p,
               void *rest) const;
  void reconstruct(const void *p, const void *q, const void *rest,
                   const void *m, void *out, void *err, int64_t divisor) const;

private:
  /// The parts of a loop; a thread processes one part at a time.
  using Parts = std::vector<std::vector<Range>>;

  MatrixList(const ddphook_matrix_list_t &list, Dtype dtype, ThreadPool &pool);
  Status allocateScratch();
  Status makeBlocks();
  void makeParts();
  void *scratchOf(int slot) const;
  template <class Fn>
  void forParts(const Parts &parts, ThreadPool::Order order,
                const Fn &fn) const;
  void multiplyQ(void *matrix, void *p, void *q) const;
  void projectPiece(const Range &range, const void *g, const void *e, void *m,
                    void *rest) const;
  void reconstructPiece(const Range &range, const void *rest, const void *m,
                        void *out, void *err, int64_t divisor) const;

  const Dtype dtype;
  const int64_t bucketBytes;
  const std::vector<ddphook_matrix_t> matrices;
  const std::vector<ddphook_piece_t> pieces;
  ThreadPool &pool;
  Parts rowParts, blockParts, matrixParts, pieceParts;

  /// How the rows of a matrix are cut for Q = Mᵀ·P, and the offset in `partial`
  /// of the sums of all blocks but the first.
  struct Blocks {
    int64_t rows, count, offset;
  };
  std::vector<Blocks> blocksOf;
  void *partial = nullptr;
  uint64_t partialBytes = 0;
  void *scratch = nullptr;
  uint64_t slotBytes = 0;
  uint64_t scratchBytes = 0;
};

} // namespace ddphook::host
