//===- sparse.h - the largest elements of the host backend ------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Takes the largest elements out of arrays of f32, and adds them up again: the
// functions sparsify and densify of compiled.h.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_HOST_KERNELS_SPARSE_H
#define DDPHOOK_RUNTIME_BACKENDS_HOST_KERNELS_SPARSE_H

#include <cstdint>

namespace ddphook::host {

/// `entries`: the `keep` elements of `in` of largest magnitude, in the order of
/// their places, and behind them these places, as int32_t. `rest` is `in` with
/// zeros there and, if anything is taken, where `in` is not finite; it may be
/// `in`. 0 <= `keep` <= `n` < 2^31.
void takeLargest(const float *in, int64_t n, int64_t keep, void *entries,
                 float *rest);

/// out[i] = the sum of the entries of place i of all `parts` that takeLargest()
/// made, which lie one behind the other. False, and `out` is undefined, where a
/// place is none of the array's.
bool addEntries(const void *entries, int64_t parts, int64_t keep, float *out,
                int64_t n);

} // namespace ddphook::host

#endif // DDPHOOK_RUNTIME_BACKENDS_HOST_KERNELS_SPARSE_H
