//===- sparse.h - the largest elements on a device --------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddphook_rt_sparsify() and ddphook_rt_densify() on arrays of a device, with
// the bits of the host's kernels, NaNs of sums excepted. Kernels are launched
// on `stream`, and nothing waits for them; the result is the first launch's
// error. Nothing is allocated. Arrays need the alignment of their elements
// only; `in` aligned to 16 bytes is read faster.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_CUDA_KERNELS_SPARSE_H
#define DDPHOOK_RUNTIME_BACKENDS_CUDA_KERNELS_SPARSE_H

#include <cuda_runtime.h>

#include <cstdint>

namespace ddphook::cuda {

/// Digits of a magnitude's 31 bits: few enough values that a block counts them
/// in shared memory.
constexpr int kSparseDigits = 3;
constexpr int kMostDigitValues = 2048;
/// Parts of an array that are searched side by side.
constexpr int kMostSparseChunks = 1024;

/// What the kernels of a takeLargest() tell each other, on the device. Calls on
/// one stream may share it.
struct SparseScratch {
  /// How often each value of a digit occurs among magnitudes that are equal in
  /// the digits before.
  unsigned counts[kSparseDigits][kMostDigitValues];
  /// Magnitudes above `least` are taken, and so many of `least`.
  unsigned least;
  unsigned ofLeast;
  /// Of each chunk, those above the least one, and equal to it.
  int above[kMostSparseChunks];
  int equal[kMostSparseChunks];
};

/// The `keep` <= n elements of largest magnitude, of equal ones the first, in
/// the order of their places: to `entries`, with these places behind them.
/// `rest`, which may equal `in`, has zeros in their places and, if `keep` > 0,
/// where `in` is not finite. n < 2^31.
cudaError_t takeLargest(cudaStream_t stream, const float *in, int64_t n,
                        int64_t keep, void *entries, float *rest,
                        SparseScratch *scratch);

/// out[i] = the sum of the entries with place i of `parts` results of
/// takeLargest(), in their order. Where places do not ascend from 0 to n - 1
/// within a part, *fault becomes 1, and `out` means nothing. `keep` >= 1.
cudaError_t addEntries(cudaStream_t stream, const void *entries, int64_t parts,
                       int64_t keep, float *out, int64_t n, int32_t *fault);

} // namespace ddphook::cuda

#endif // DDPHOOK_RUNTIME_BACKENDS_CUDA_KERNELS_SPARSE_H
