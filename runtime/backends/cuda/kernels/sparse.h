// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Implements ddphook_rt_sparsify() and ddphook_rt_densify() on arrays of a
// device, with the bits of the host's kernels, except for NaNs of sums. The
// functions launch kernels on `stream` and return the first launch's error
// without waiting. They allocate nothing. Arrays only need the alignment of
// their elements; `in` is read faster if it is aligned to 16 bytes.

#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace ddphook::cuda {

/// The digits of a magnitude's 31 bits; a block can count the values of one in
/// shared memory.
constexpr int kSparseDigits = 3;
constexpr int kMostDigitValues = 2048;
/// The maximum number of parts of an array that are searched in parallel.
constexpr int kMostSparseChunks = 1024;

/// Data on the device that the kernels of a takeLargest() pass on. Calls on one
/// stream may share it.
struct SparseScratch {
  /// The number of occurrences of each value of a digit among magnitudes whose
  /// higher digits match.
  unsigned counts[kSparseDigits][kMostDigitValues];
  /// Selects all magnitudes above `least`, and the first `ofLeast` equal to it.
  unsigned least;
  unsigned ofLeast;
  /// The magnitudes of each chunk above the least one, and equal to it.
  int above[kMostSparseChunks];
  int equal[kMostSparseChunks];
};

/// Writes to `entries` the `keep` <= n elements of largest magnitude, the first
/// among equal ones, ordered by index and followed by their indices. `rest`,
/// which may equal `in`, gets zeros at these and, if `keep` > 0, where `in` is
/// not finite. n < 2^31.
cudaError_t takeLargest(cudaStream_t stream, const float *in, int64_t n,
                        int64_t keep, void *entries, float *rest,
                        SparseScratch *scratch);

/// Computes out[i] = the sum of the entries with index i of `parts` results of
/// takeLargest(), in order. If indices do not ascend within 0 … n - 1 in a
/// part, *fault becomes 1 and `out` is undefined. `keep` >= 1.
cudaError_t addEntries(cudaStream_t stream, const void *entries, int64_t parts,
                       int64_t keep, float *out, int64_t n, int32_t *fault);

} // namespace ddphook::cuda
