// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Counts what the threads of kernels load from global memory and store there by
// the functions that name a cache policy (__ldca, __ldcs, __stwb, …), and what
// they copy to shared memory with __pipeline_memcpy_async(). A plain load or
// store is not counted. The device's caches are not modelled: a byte that many
// threads load counts as often.

#pragma once

#include <cstdint>
#include <vector>

namespace emulated_cuda {

/// Loads and stores of one policy.
struct Accesses {
  uint64_t count = 0;
  uint64_t bytes = 0;

  // Fibers of one thread run all threads of a kernel; TSan takes fibers for
  // threads.
  __attribute__((no_sanitize("thread"))) void add(uint64_t size) {
    ++count;
    bytes += size;
  }
};

/// The accesses of a launch. The streamed ones have the policy .cs, evict
/// first.
struct Traffic {
  Accesses loads, streamedLoads, stores, streamedStores;
};

/// The accesses so far of the launch that runs on this thread; null if it is
/// not recorded.
extern __thread Traffic *runningTraffic;

/// Starts or stops recording the launches of this process, and drops those that
/// are recorded.
void recordTraffic(bool on);
/// Returns the recorded launches that have ended since the last call, in the
/// order in which they ended.
std::vector<Traffic> takeTraffic();

} // namespace emulated_cuda
