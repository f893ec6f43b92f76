// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Codes that every rank sends to all ranks: bytes with a scale and a zero
// point, and signs. The bits are those of docs/quantization.md. The conventions
// of kernels.h apply, but there may be several launches: one for blocks of up
// to kWarpBlock elements, and two for longer blocks, which several thread
// blocks share.

#pragma once

#include "base/dtype.h"
#include "base/encoding.h"

#include <cuda_runtime.h>

#include <cstdint>

namespace ddphook::cuda {

/// The number of elements in the longest block that a single warp encodes.
constexpr int64_t kWarpBlock = 4096;

/// Bytes for the results of slices of long blocks, before they are encoded.
constexpr int64_t kAffineScratchBytes = 32 << 10;

/// A rank's array on the wire: the codes, then an AffineScale per block. The
/// padding after each is arbitrary.
struct AffineCodes {
  Code code;
  /// Elements of the array and of a block; the last block may have fewer.
  int64_t count, block;
  int64_t blocks;
  /// The offset of the scales, and the total length; multiples of 16.
  int64_t scaleOffset, bytes;
  /// Divide as hosts do, instead of as PyTorch does on CUDA tensors. Always
  /// true of signs, which PyTorch does not have.
  bool isExact;

  static AffineCodes of(const Encoding &encoding, int64_t count,
                        bool isExact = false);
  /// Bytes of `ranks` arrays whose codes and scales have at most `mostBytes`.
  static int64_t mostBytes(int64_t mostBytes, int64_t ranks);
};

/// Encodes an array to `out`. Both `out` and `scratch`, of kAffineScratchBytes
/// bytes, are aligned to 16 bytes.
cudaError_t encodeAffine(cudaStream_t stream, const void *in, Dtype inType,
                         const AffineCodes &codes, void *out, void *scratch);

/// Computes out[i] = (x₀ + x₁ + …) / divisor, where code i of rank k decodes to
/// xₖ: `in` has the codes of all ranks, contiguously.
cudaError_t averageAffine(cudaStream_t stream, const void *in, int64_t ranks,
                          const AffineCodes &codes, int64_t divisor, void *out,
                          Dtype outType);

/// Computes out[i] = in[i] minus the value of its code, or 0 where that is not
/// finite. `out` may be `in`.
cudaError_t affineError(cudaStream_t stream, const void *in, void *out,
                        Dtype type, const AffineCodes &codes, void *scratch);

} // namespace ddphook::cuda
