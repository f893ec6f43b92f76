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

  // The threads of a kernel count together; TSan takes them for several.
  __attribute__((no_sanitize("thread"))) void add(uint64_t size) {
    ++count;
    bytes += size;
  }
};

/// Those of a launch. `streamed` are those that evict first: .cs.
struct Traffic {
  Accesses loads, streamedLoads, stores, streamedStores;
};

/// What the launch that runs on this thread has done so far.
extern __thread Traffic *runningTraffic;

/// From now on, or no longer, every launch of this process is recorded.
void recordTraffic(bool on);
/// The recorded launches that have ended, in the order of their ends; the next
/// call begins with those after.
std::vector<Traffic> takeTraffic();

} // namespace emulated_cuda
