//===- encode.h - codes of the CUDA backend ---------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Encodes and decodes arrays of a device, and adds encoded ones: casts and
// scaled codes; affine.h has the others. The bits are those of
// docs/quantization.md. The conventions are those of kernels.h.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_CUDA_KERNELS_ENCODE_H
#define DDPHOOK_RUNTIME_BACKENDS_CUDA_KERNELS_ENCODE_H

#include "base/dtype.h"
#include "base/encoding.h"
#include "base/rounding.h"

#include <cuda_runtime.h>

#include <cstdint>
#include <optional>

namespace ddphook::cuda {

/// An encoded array as it travels: cut into parts, one for each rank. The bytes
/// of a part are the codes of the blocks that it touches, whole ones but for
/// the array's last, and then their scales. All parts have room for the largest
/// one, so that they are equally long; what lies behind codes and scales has no
/// meaning.
struct EncodedParts {
  Encoding encoding;
  /// Elements of the array, and of a part; the last parts may have fewer.
  int64_t count, part;
  /// Elements with a scale in common; of casts, which have none, some.
  int64_t block;
  /// Blocks that a part may touch.
  int64_t blocks;
  /// Where a part's scales begin, and its length; a multiple of 16.
  int64_t scaleOffset, bytes;

  /// Parts that end with blocks, so that no block is in two of them.
  static EncodedParts ofWholeBlocks(const Encoding &encoding, int64_t count,
                                    int64_t ranks);
  /// Those of a reduce-scatter, which may begin and end within a block.
  static EncodedParts ofScatter(const Encoding &encoding, int64_t count,
                                int64_t ranks);
  /// Bytes of `ranks` parts, either way, of any array for which a rank sends at
  /// most `mostBytes` bytes of codes and scales.
  static int64_t mostBytes(int64_t mostBytes, int64_t ranks);
};

/// Encodes an array of parts.count elements: parts 0 … ranks - 1 lie behind
/// each other in `out`, which is aligned to 16 bytes. With a `rounding`, of
/// scaled codes only, quotients are rounded stochastically, else to nearest.
cudaError_t encodeParts(cudaStream_t stream, const void *in, Dtype inType,
                        const EncodedParts &parts, int64_t ranks, void *out,
                        const std::optional<Rounding> &rounding);

/// Encodes (x₀ + x₁ + …) / divisor to `out`, where xₖ is what that part of rank
/// k decodes to: `in` has the part of each rank, one behind the other, apart
/// from `out`.
cudaError_t sumPart(cudaStream_t stream, const void *in, int64_t ranks,
                    const EncodedParts &parts, int64_t part, int64_t divisor,
                    void *out, const std::optional<Rounding> &rounding);

/// out[i] = the element of code i, for the elements of `number` parts from part
/// `first` on, which lie behind each other in `in`.
cudaError_t decodeParts(cudaStream_t stream, const void *in,
                        const EncodedParts &parts, int64_t first,
                        int64_t number, void *out, Dtype outType);

/// out[i] = in[i] less what its code decodes to, or 0 where that is not finite.
/// `out` may be `in`.
cudaError_t encodingError(cudaStream_t stream, const void *in, void *out,
                          Dtype type, int64_t n, const Encoding &encoding,
                          const std::optional<Rounding> &rounding);

} // namespace ddphook::cuda

#endif // DDPHOOK_RUNTIME_BACKENDS_CUDA_KERNELS_ENCODE_H
