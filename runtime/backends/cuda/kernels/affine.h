//===- affine.h - affine codes of the CUDA backend --------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Codes that go from every rank to all ranks: bytes with a scale and a zero
// point, and signs. The bits are those of docs/quantization.md. The conventions
// are those of kernels.h, except that there may be several launches: one for
// blocks of up to kWarpBlock elements, and two for longer ones, which many
// thread blocks share.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_CUDA_KERNELS_AFFINE_H
#define DDPHOOK_RUNTIME_BACKENDS_CUDA_KERNELS_AFFINE_H

#include "base/dtype.h"
#include "base/encoding.h"

#include <cuda_runtime.h>

#include <cstdint>

namespace ddphook::cuda {

/// Elements of the longest blocks that a warp has to itself.
constexpr int64_t kWarpBlock = 4096;

/// What thread blocks find of long blocks, before others encode them.
constexpr int64_t kAffineScratchBytes = 32 << 10;

/// A rank's array as it travels: the codes, and then an AffineScale for each
/// block. What lies behind them has no meaning.
struct AffineCodes {
  Code code;
  /// Elements, and those of a block; the last block may have fewer.
  int64_t count, block;
  int64_t blocks;
  /// Where scales begin, and the length; multiples of 16.
  int64_t scaleOffset, bytes;

  static AffineCodes of(const Encoding &encoding, int64_t count);
  /// Bytes of `ranks` arrays, of which codes and scales have at most
  /// `mostBytes`.
  static int64_t mostBytes(int64_t mostBytes, int64_t ranks);
};

/// Encodes an array to `out`, which is aligned to 16 bytes, as is `scratch`,
/// of kAffineScratchBytes bytes.
cudaError_t encodeAffine(cudaStream_t stream, const void *in, Dtype inType,
                         const AffineCodes &codes, void *out, void *scratch);

/// out[i] = (x₀ + x₁ + …) / divisor, where xₖ is what code i of rank k decodes
/// to: `in` has the codes of all ranks, one behind the other.
cudaError_t averageAffine(cudaStream_t stream, const void *in, int64_t ranks,
                          const AffineCodes &codes, int64_t divisor, void *out,
                          Dtype outType);

/// out[i] = in[i] less what its code decodes to, or 0 where that is not finite.
/// `out` may be `in`.
cudaError_t affineError(cudaStream_t stream, const void *in, void *out,
                        Dtype type, int64_t n, const Encoding &encoding,
                        void *scratch);

} // namespace ddphook::cuda

#endif // DDPHOOK_RUNTIME_BACKENDS_CUDA_KERNELS_AFFINE_H
