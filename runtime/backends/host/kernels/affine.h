// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Declares what encode.cpp needs from affine.cpp.

#ifndef DDPHOOK_RUNTIME_BACKENDS_HOST_KERNELS_AFFINE_H
#define DDPHOOK_RUNTIME_BACKENDS_HOST_KERNELS_AFFINE_H

#include "base/dtype.h"
#include "base/encoding.h"

#include <cstdint>

namespace ddphook::host {

/// encodingError() for affine codes.
void affineError(const void *in, void *out, Dtype type, int64_t n,
                 const Encoding &encoding);

} // namespace ddphook::host

#endif // DDPHOOK_RUNTIME_BACKENDS_HOST_KERNELS_AFFINE_H
