// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Computes P = M·Q, Q = Mᵀ·P and M = P·Qᵀ for the matrices of a list whose rank
// exceeds 32, with one cuBLAS call per matrix. It uses neither TF32 nor
// atomics, and a workspace of the list, so that calls can be captured and give
// the same bits each time.

#pragma once

#include "base/status.h"
#include "matrix_tables.h"
#include "memory_source.h"

#include <cuda_runtime.h>

#include <memory>
#include <vector>

namespace ddphook::cuda {

/// A device's cuBLAS handle.
struct Cublas;

class WideProducts {
public:
  /// Creates products for the current device, with a workspace from `memory`,
  /// which must outlive them. RESOURCE_EXHAUSTED: no memory; UNSUPPORTED:
  /// cuBLAS does not work here.
  static Status create(Dtype type, const std::vector<MatrixEntry> &matrices,
                       MemorySource &memory,
                       std::unique_ptr<WideProducts> *result);

  /// See MatrixList::matmul().
  cudaError_t multiply(cudaStream_t stream, ddphook_matmul_kind_t kind,
                       const void *matrixIn, void *matrixOut, const void *pIn,
                       void *pOut, const void *qIn, void *qOut);

private:
  /// C = op(A)·op(B), column by column: m x n, with the inner dimension k.
  struct Product {
    bool isTransposedA, isTransposedB;
    int64_t m, n, k;
    const void *a;
    int64_t leadingA;
    const void *b;
    int64_t leadingB;
    void *c;
  };

  WideProducts(Dtype type, const std::vector<MatrixEntry> &matrices)
      : type(type), matrices(matrices) {}
  cudaError_t run(cudaStream_t stream, const Product &product) const;

  const Dtype type;
  const std::vector<MatrixEntry> matrices;
  Cublas *cublas = nullptr;
  DeviceBuffer workspace;
};

} // namespace ddphook::cuda
