// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The list of all allocations of devices and of pinned host memory.

#pragma once

#include "device.h"

namespace emulated_cuda {

struct Allocation {
  char *begin;
  size_t bytes;
  cudaMemoryType type;
  Device *device;
};

/// The allocation that holds `address`; false: none does.
bool findAllocation(const void *address, Allocation *allocation);

/// Whether [address, address + bytes) lies in one allocation of a device.
bool isDeviceRange(const void *address, size_t bytes);

} // namespace emulated_cuda
