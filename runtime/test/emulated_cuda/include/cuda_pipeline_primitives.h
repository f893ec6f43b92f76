// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A thread's copies from global to dynamic shared memory (cp.async). They
// arrive when the thread waits for them and no earlier; from the call on until
// then the destination is poisoned, because the device may write it at any
// time. Other threads see them behind a barrier after that. A thread that ends
// with copies for which it has not waited, or has not committed, is an error.

#pragma once

#include <cstddef>

namespace emulated_cuda {
void copyAsync(void *shared, const void *global, size_t size, size_t zeros);
void commitCopies();
void waitForCopies(size_t prior);
} // namespace emulated_cuda

/// `size` is 4, 8 or 16, and both addresses are multiples of it; the last
/// `zfill` bytes become zero instead.
inline void __pipeline_memcpy_async(void *shared, const void *global,
                                    size_t size, size_t zfill = 0) {
  emulated_cuda::copyAsync(shared, global, size, zfill);
}
inline void __pipeline_commit() { emulated_cuda::commitCopies(); }
/// Waits for all committed groups of copies but the last `prior` ones.
inline void __pipeline_wait_prior(size_t prior) {
  emulated_cuda::waitForCopies(prior);
}
