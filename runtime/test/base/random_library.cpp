// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A shared object through which test/parity/test_random.py compares numbers
// with PyTorch's.

#include "base/random.h"

using namespace ddphook;

extern "C" {
__attribute__((visibility("default"))) void
ddphook_test_seed(uint32_t seed, int32_t *generator);
__attribute__((visibility("default"))) int32_t
ddphook_test_normal(int32_t *generator, const int64_t *draws, int64_t drawCount,
                    void *out, int32_t dtype);
}

void ddphook_test_seed(uint32_t seed, int32_t *generator) {
  seedGenerator(seed, generator);
}

int32_t ddphook_test_normal(int32_t *generator, const int64_t *draws,
                            int64_t drawCount, void *out, int32_t dtype) {
  return drawNormal(generator, draws, drawCount, out, static_cast<Dtype>(dtype))
      .code();
}
