//===- wide_products.h - products of a high rank ----------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// P = M·Q, Q = Mᵀ·P and M = P·Qᵀ of the matrices of a list whose rank is above
// 32, by cuBLAS, one call a matrix: without TF32 and without atomics, in a
// workspace of the list's, so that calls can be captured and give the same bits
// each time.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_CUDA_KERNELS_WIDE_PRODUCTS_H
#define DDPHOOK_RUNTIME_BACKENDS_CUDA_KERNELS_WIDE_PRODUCTS_H

#include "base/status.h"
#include "matrix_tables.h"
#include "memory_source.h"

#include <cuda_runtime.h>

#include <memory>
#include <vector>

namespace ddphook::cuda {

class WideProducts {
public:
  /// For the current device, with a workspace from `memory`, which outlives the
  /// products. RESOURCE_EXHAUSTED: no memory; UNSUPPORTED: cuBLAS
  /// does not work here.
  static Status create(Dtype type, const std::vector<MatrixEntry> &matrices,
                       MemorySource &memory,
                       std::unique_ptr<WideProducts> *result);
  virtual ~WideProducts() = default;

  /// As MatrixList::matmul().
  virtual cudaError_t multiply(cudaStream_t stream, ddphook_matmul_kind_t kind,
                               const void *matrixIn, void *matrixOut,
                               const void *pIn, void *pOut, const void *qIn,
                               void *qOut) = 0;
};

} // namespace ddphook::cuda

#endif // DDPHOOK_RUNTIME_BACKENDS_CUDA_KERNELS_WIDE_PRODUCTS_H
