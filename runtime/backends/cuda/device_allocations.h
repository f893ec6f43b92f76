// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tracks the backend's allocations, and checks if an address that a caller
// passes is memory of this GPU.

#pragma once

#include "base/status.h"
#include "kernels/memory_source.h"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>

namespace ddphook::cuda {

class DeviceAllocations {
public:
  struct Block {
    /// The source's memory; starts before the block's if that needs more
    /// alignment.
    void *base;
    uint64_t baseBytes;
    uint64_t bytes;
  };

  /// `source` must outlive this object.
  DeviceAllocations(int device, MemorySource &source)
      : device(device), source(source) {}

  /// Allocates memory and zeroes it on `stream`, which has no other work. It is
  /// zeroed when this returns, so it may be used on any stream.
  /// RESOURCE_EXHAUSTED says how much is free.
  Status allocate(uint64_t bytes, uint64_t alignment, cudaStream_t stream,
                  void **memory);
  /// Returns null if nothing was allocated at that address.
  const Block *find(const void *memory) const;
  /// Frees the memory; nothing on the device may use it any more.
  void release(void *memory);
  /// Frees all memory, released or not.
  void releaseAll();
  /// Forgets the memory without freeing it: the device may still write to it.
  void abandon(void *memory) { blocks.erase(memory); }

  const std::map<const void *, Block> &all() const { return blocks; }

  /// Returns INVALID_ARGUMENT if `address` is not memory that this GPU can use;
  /// `argument` names it.
  Status check(const void *address, const char *argument) const;

private:
  bool owns(const void *address) const;

  const int device;
  MemorySource &source;
  std::map<const void *, Block> blocks;
};

} // namespace ddphook::cuda
