// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Implements encode.h's affine codes of one bit: eight per byte, the first in
// the lowest bit. docs/quantization.md has the formula.

#ifndef DDPHOOK_RUNTIME_BACKENDS_HOST_KERNELS_SIGNS_H
#define DDPHOOK_RUNTIME_BACKENDS_HOST_KERNELS_SIGNS_H

#include "encode.h"

namespace ddphook::host {

/// Returns the scale of a block of `n` elements: twice their mean magnitude.
AffineScale findSignScale(const void *in, Dtype type, int64_t n);

/// Encodes the signs of `n` elements.
void encodeSigns(const void *in, Dtype type, int64_t n, uint8_t *codes);

/// Writes a byte for each of `n` codes.
void unpackSigns(const uint8_t *codes, int64_t n, uint8_t *bytes);

} // namespace ddphook::host

#endif // DDPHOOK_RUNTIME_BACKENDS_HOST_KERNELS_SIGNS_H
