// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The arithmetic of ddphook_rt_cast() and similar functions on arrays of a
// device. Low-rank kernels are in lowrank.h; collectives, memory and streams
// are elsewhere.
//
// Common to all functions:
// - They launch at most one kernel on `stream` and return its launch error
//   without waiting. They allocate nothing. `n` may be 0; pointers are then
//   ignored.
// - Rounding is to nearest even; f64 becomes a 16-bit type through f32, as in
//   PyTorch. 16-bit values are computed in f32 and rounded once per operation.
//   A NaN stays some NaN; subnormals are kept. The bits are those of the host
//   kernels, except for NaNs and quotients that are not exact.
// - Arrays only need the alignment of their elements; with an alignment of 16
//   bytes they are read and written faster.
// - The output may be the same array as an input whose elements have the same
//   size; otherwise they must not overlap.

#pragma once

#include "base/dtype.h"
#include "elements.h"

#include <cuda_runtime.h>

#include <cstdint>

namespace ddphook::cuda {

/// Converts in[i] to out[i].
cudaError_t castArray(cudaStream_t stream, const void *in, Dtype inType,
                      void *out, Dtype outType, int64_t n);

/// Computes out[i] = in[i] * factor, where the factor is first rounded to f32
/// (but not for f64).
cudaError_t scaleArray(cudaStream_t stream, const void *in, void *out,
                       Dtype type, int64_t n, double factor);

/// Compute out[i] = a[i] + b[i], and a[i] - b[i].
cudaError_t addArrays(cudaStream_t stream, void *out, const void *a,
                      const void *b, Dtype type, int64_t n);
cudaError_t subtractArrays(cudaStream_t stream, void *out, const void *a,
                           const void *b, Dtype type, int64_t n);

/// Computes what a hook sends, in one pass: wire[i] = RN(RN(in[i]) / divisor),
/// with both roundings to `wireType`; a divisor of 1 means no division.
cudaError_t compressArray(cudaStream_t stream, const void *in, Dtype inType,
                          void *wire, Dtype wireType, int64_t n,
                          Divisor divisor);

/// Sets the device flag *flag to 1 if an element is infinite or NaN; otherwise
/// leaves it unchanged.
cudaError_t findNonFinite(cudaStream_t stream, const void *in, Dtype type,
                          int64_t n, int32_t *flag);

/// Adds the squares of all elements to the device's *sum, in f64 and in any
/// order.
cudaError_t addSquares(cudaStream_t stream, const void *in, Dtype type,
                       int64_t n, double *sum);

} // namespace ddphook::cuda
