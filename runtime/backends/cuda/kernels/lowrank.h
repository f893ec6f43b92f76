// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The low-rank calls of compiled.h on arrays of a device, for all matrices of a
// list at once. Element-wise kernels are in kernels.h.
//
// Common to all calls:
// - They launch kernels on `stream`, as few as possible for any number of
//   matrices, and return the first launch's error without waiting. They
//   allocate nothing.
// - f32 and f64 are accumulated in their own type, without TF32, and the Gram
//   matrices of tall f32 factors in f64; 16-bit types are accumulated in f32
//   and rounded once per element of a product. Sums have a fixed order: the
//   same input gives the same bits on every device of a kind.
// - Fused passes give the bits of the calls that they replace. A row of Pᵢ
//   depends only on the same row of Mᵢ.
// - cuBLAS computes products of a rank above 32, one call per matrix. Their
//   bits are the same for the same arrays on the same device and library;
//   unlike those of our kernels they may depend on the alignment of arrays.

#pragma once

#include "base/dtype.h"
#include "base/status.h"
#include "ddphook/runtime/backend.h"
#include "lowrank_stages.h"
#include "memory_source.h"
#include "wide_products.h"

#include <cuda_runtime.h>

#include <memory>

namespace ddphook::cuda {

/// A matrix list of backend.h on the current device, which has its tables and
/// scratch memory.
class MatrixList {
public:
  /// Uploads the tables, allocates the scratch from `memory`, which must
  /// outlive the list, and waits for both. RESOURCE_EXHAUSTED: no memory.
  static Status create(const ddphook_matrix_list_t &list, Dtype dtype,
                       MemorySource &memory,
                       std::unique_ptr<MatrixList> *result);

  // The following functions implement the calls of the same names.
  cudaError_t matmul(cudaStream_t stream, ddphook_matmul_kind_t kind,
                     void *matrix, void *p, void *q);
  cudaError_t orthogonalize(cudaStream_t stream, int32_t factor, const void *in,
                            void *out, double epsilon);
  cudaError_t project(cudaStream_t stream, const void *g, const void *e,
                      const void *q, void *m, void *p, void *rest);
  cudaError_t reconstruct(cudaStream_t stream, const void *p, const void *q,
                          const void *rest, const void *m, void *out, void *err,
                          int64_t divisor);

  /// See Divisor in elements.h.
  bool dividesExactly = false;

private:
  /// A stage's tiles on the device.
  struct Stage {
    const Tile *tiles = nullptr;
    int64_t matrixTiles = 0;
    int64_t listTiles = 0;
    int64_t allTiles = 0;
  };

  MatrixList(Dtype type, const MatrixTables &tables)
      : type(type), bucket(tables.bucket), largestRank(tables.largestRank),
        matrixCount(static_cast<int64_t>(tables.matrices.size())) {}
  Status upload(const MatrixTables &tables, MemorySource &source);
  StageLaunch launchOf(cudaStream_t stream, const Stage &stage,
                       int64_t blocks) const;

  const Dtype type;
  const int bucket;
  const int64_t largestRank, matrixCount;
  DeviceBuffer buffer;
  const MatrixEntry *matrices = nullptr;
  const ddphook_piece_t *pieces = nullptr;
  Stage projectStage, transposedStage, sumStage, reconstructStage;
  Stage gramStages[2];
  std::unique_ptr<WideProducts> wide;
  void *partials = nullptr;
  void *work = nullptr;
  double *grams = nullptr;
  /// Shared memory for the factors Q and P in orthogonalize, and its threads.
  int64_t sharedBytes[2] = {0, 0};
  int threads = 0;
};

} // namespace ddphook::cuda
