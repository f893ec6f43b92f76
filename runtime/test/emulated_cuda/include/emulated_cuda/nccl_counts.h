// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// For tests: counts, since the emulated device says nothing about times.

#pragma once

#include <cstdint>

namespace emulated_cuda {

/// Of this process until now.
struct NcclCounts {
  /// Calls and groups of calls with something to do, for each communicator.
  int64_t launches;
  /// Threads that they started: one each, unless the communicator is blocking.
  int64_t threads;
};

NcclCounts ncclCounts();

} // namespace emulated_cuda
