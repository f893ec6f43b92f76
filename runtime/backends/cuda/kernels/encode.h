// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Encodes and decodes arrays of a device, and adds encoded ones: casts and
// scaled codes; affine.h has the others. The bits are those of
// docs/quantization.md. The conventions of kernels.h apply.

#pragma once

#include "base/dtype.h"
#include "base/encoding.h"
#include "base/rounding.h"

#include <cuda_runtime.h>

#include <cstdint>
#include <optional>

namespace ddphook::cuda {

/// An encoded array on the wire, cut into one part per rank. A part consists of
/// the codes of the blocks that it touches, all whole except for the array's
/// last, and then their scales. All parts have the size of the largest one; the
/// padding after codes and after scales is arbitrary.
struct EncodedParts {
  Encoding encoding;
  /// Elements of the array and of a part; the last parts may have fewer.
  int64_t count, part;
  /// Elements that share a scale; for casts, which have none, any number.
  int64_t block;
  /// Blocks that a part may touch.
  int64_t blocks;
  /// The offset of a part's scales, and its length; a multiple of 16.
  int64_t scaleOffset, bytes;

  /// Parts that end at block boundaries, so that no block is in two of them.
  static EncodedParts ofWholeBlocks(const Encoding &encoding, int64_t count,
                                    int64_t ranks);
  /// Parts of a reduce-scatter, which may begin and end within a block.
  static EncodedParts ofScatter(const Encoding &encoding, int64_t count,
                                int64_t ranks);
  /// Bytes of `ranks` parts of either kind, for any array of which a rank sends
  /// at most `mostBytes` bytes of codes and scales.
  static int64_t mostBytes(int64_t mostBytes, int64_t ranks);
};

/// Encodes an array of parts.count elements: `out`, which is aligned to 16
/// bytes, gets parts 0 … ranks - 1, contiguously. With a `rounding`, for scaled
/// codes only, quotients are rounded stochastically, otherwise to nearest.
cudaError_t encodeParts(cudaStream_t stream, const void *in, Dtype inType,
                        const EncodedParts &parts, int64_t ranks, void *out,
                        const std::optional<Rounding> &rounding);

/// Encodes (x₀ + x₁ + …) / divisor to `out`, where part number `part` of rank k
/// decodes to xₖ. `in` has that part of each rank, contiguously, and does not
/// overlap `out`.
cudaError_t sumPart(cudaStream_t stream, const void *in, int64_t ranks,
                    const EncodedParts &parts, int64_t part, int64_t divisor,
                    void *out, const std::optional<Rounding> &rounding);

/// Computes out[i] = the value of code i, for the elements of `number` parts
/// from part `first` on, which are contiguous in `in`.
cudaError_t decodeParts(cudaStream_t stream, const void *in,
                        const EncodedParts &parts, int64_t first,
                        int64_t number, void *out, Dtype outType);

/// Computes out[i] = in[i] minus the value of its code, or 0 where that is not
/// finite. `out` may be `in`.
cudaError_t encodingError(cudaStream_t stream, const void *in, void *out,
                          Dtype type, int64_t n, const Encoding &encoding,
                          const std::optional<Rounding> &rounding);

} // namespace ddphook::cuda
