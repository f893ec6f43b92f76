// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The arguments of ddphook_rt_sparsify() that every backend checks.

#ifndef DDPHOOK_RUNTIME_SRC_BASE_SPARSE_CHECK_H
#define DDPHOOK_RUNTIME_SRC_BASE_SPARSE_CHECK_H

#include "base/status.h"

#include <cstdint>
#include <limits>

namespace ddphook {

inline Status checkKept(int64_t keep, int64_t count) {
  if (keep <= count && count <= std::numeric_limits<int32_t>::max())
    return Status::ok();
  return error(
      DDPHOOK_INVALID_ARGUMENT,
      "expected to keep some of fewer than 2^31 elements, but got %lld of %lld",
      static_cast<long long>(keep), static_cast<long long>(count));
}

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_BASE_SPARSE_CHECK_H
