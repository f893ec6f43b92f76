//===- device_allocations.h - memory of a GPU -------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the backend has allocated, and whether an address that a caller gives is
// memory of this GPU.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_CUDA_DEVICE_ALLOCATIONS_H
#define DDPHOOK_RUNTIME_BACKENDS_CUDA_DEVICE_ALLOCATIONS_H

#include "base/status.h"
#include "kernels/memory_source.h"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>

namespace ddphook::cuda {

class DeviceAllocations {
public:
  struct Block {
    /// What the source gave; begins before the memory where that has to be
    /// aligned further.
    void *base;
    uint64_t baseBytes;
    uint64_t bytes;
  };

  /// `source` outlives it.
  DeviceAllocations(int device, MemorySource &source)
      : device(device), source(source) {}

  /// Zeroed when it returns, on `stream`, which has nothing else to do: whoever
  /// is given the memory may use it on any stream. RESOURCE_EXHAUSTED says how
  /// much is free.
  Status allocate(uint64_t bytes, uint64_t alignment, cudaStream_t stream,
                  void **memory);
  /// Null where nothing was allocated at that address.
  const Block *find(const void *memory) const;
  /// Gives the memory back; nothing on the device uses it any more.
  void release(void *memory);
  /// The same with all memory, also that which nobody has released.
  void releaseAll();
  /// Forgets the memory without freeing it: the device may still write to it.
  void abandon(void *memory) { blocks.erase(memory); }

  const std::map<const void *, Block> &all() const { return blocks; }

  /// INVALID_ARGUMENT where `address` is not memory that this GPU can use;
  /// `argument` names it.
  Status check(const void *address, const char *argument) const;

private:
  bool owns(const void *address) const;

  const int device;
  MemorySource &source;
  std::map<const void *, Block> blocks;
};

} // namespace ddphook::cuda

#endif // DDPHOOK_RUNTIME_BACKENDS_CUDA_DEVICE_ALLOCATIONS_H
