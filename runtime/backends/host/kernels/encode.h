// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Encodes and decodes contiguous arrays, and adds encoded ones. The bits are
// those of docs/quantization.md on every instruction set. The conventions of
// kernels.h apply.

#pragma once

#include "base/dtype.h"
#include "base/encoding.h"
#include "base/rounding.h"
#include "kernels.h"

#include <cstdint>
#include <optional>

namespace ddphook::host {

/// The addresses of encoded elements: codeBytes() of codes, which start at a
/// block, and scaleBytes() of scales. They need no alignment.
struct EncodedArray {
  void *codes;
  void *scales;
};

// Casts and scaled codes. With a `rounding`, which only scaled codes may have,
// quotients are rounded stochastically, otherwise to nearest even.

/// Encodes `n` elements, which start at a block.
void encodeArray(const void *in, Dtype inType, int64_t n,
                 const Encoding &encoding, EncodedArray out,
                 const std::optional<Rounding> &rounding = std::nullopt);

/// Computes out[i] = the value of code i. Types other than f32 always ignore
/// `stores` and are written through the caches.
void decodeArray(EncodedArray in, const Encoding &encoding, int64_t n,
                 void *out, Dtype outType, Stores stores = Stores::Cached);

/// Encodes (x₀ + x₁ + … ) / divisor, where sources[k] decodes to xₖ. `count` >=
/// 1, `divisor` >= 1; `out` may be one of the sources.
void sumEncoded(const EncodedArray *sources, int count,
                const Encoding &encoding, int64_t n, int64_t divisor,
                EncodedArray out,
                const std::optional<Rounding> &rounding = std::nullopt);

/// Computes out[i] = in[i] minus the value of its code. `out` may be `in`.
void encodingError(const void *in, void *out, Dtype type, int64_t n,
                   const Encoding &encoding,
                   const std::optional<Rounding> &rounding = std::nullopt);

// Affine codes of a block, or of a part of one that starts at a byte.

/// Returns the scale of a block of `n` elements.
AffineScale findAffineScale(Code code, const void *in, Dtype type, int64_t n);

/// Encodes elements of a block with the given scale.
void encodeAffine(Code code, const void *in, Dtype type, int64_t n,
                  const AffineScale &scale, uint8_t *codes);

/// Computes out[i] = (x₀ + x₁ + …) / divisor, where code i of codes[k] decodes
/// to xₖ with scales[k].
void averageAffine(Code code, const uint8_t *const *codes,
                   const AffineScale *scales, int count, int64_t n,
                   int64_t divisor, void *out, Dtype outType);

/// encodingError() for affine codes.
void affineError(const void *in, void *out, Dtype type, int64_t n,
                 const Encoding &encoding);

} // namespace ddphook::host
