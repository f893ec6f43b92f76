// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Extracts the largest elements of f32 arrays and adds them up again: the
// functions sparsify and densify of compiled.h.

#ifndef DDPHOOK_RUNTIME_BACKENDS_HOST_KERNELS_SPARSE_H
#define DDPHOOK_RUNTIME_BACKENDS_HOST_KERNELS_SPARSE_H

#include <cstdint>

namespace ddphook::host {

/// Writes to `entries` the `keep` elements of `in` of largest magnitude,
/// ordered by index, followed by their indices, as int32_t. `rest` is `in` with
/// zeros at these and, if `keep` > 0, where `in` is not finite; it may be `in`.
/// 0 <= `keep` <= `n` < 2^31.
void takeLargest(const float *in, int64_t n, int64_t keep, void *entries,
                 float *rest);

/// Computes out[i] = the sum of the entries with index i in all `parts` results
/// of takeLargest(), which are contiguous. Returns false, with `out` undefined,
/// if an index is outside the array.
bool addEntries(const void *entries, int64_t parts, int64_t keep, float *out,
                int64_t n);

} // namespace ddphook::host

#endif // DDPHOOK_RUNTIME_BACKENDS_HOST_KERNELS_SPARSE_H
