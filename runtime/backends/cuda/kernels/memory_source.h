//===- memory_source.h - where device memory comes from ---------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All memory of a GPU that the backend and its matrix lists hold comes from a
// source: CUDA here, NCCL and the caller's allocator in memory_sources.h.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_CUDA_KERNELS_MEMORY_SOURCE_H
#define DDPHOOK_RUNTIME_BACKENDS_CUDA_KERNELS_MEMORY_SOURCE_H

#include "base/status.h"

#include <cstdint>

namespace ddphook::cuda {

/// What divides every address that a source gives; cudaMalloc() promises it.
constexpr uint64_t kMemoryAlignment = 256;

class MemorySource {
public:
  virtual ~MemorySource() = default;
  /// Gives `bytes` bytes, at least 1, which any stream may use at once; what is
  /// in them does not matter. RESOURCE_EXHAUSTED where there are not as many.
  virtual Status take(uint64_t bytes, void **memory) = 0;
  /// Takes them back. The GPU has done all that it was given to do with them.
  virtual void giveBack(void *memory, uint64_t bytes) = 0;
};

/// cudaMalloc() and cudaFree() on the current device.
MemorySource &cudaMemory();

/// RESOURCE_EXHAUSTED for so many bytes; says how many are free.
Status describeExhaustion(uint64_t bytes);

/// A block of memory with one owner; empty at first.
class DeviceBuffer {
public:
  DeviceBuffer() = default;
  ~DeviceBuffer() {
    if (memory)
      source->giveBack(memory, bytes);
  }
  DeviceBuffer(const DeviceBuffer &) = delete;
  DeviceBuffer &operator=(const DeviceBuffer &) = delete;

  /// Once. `source` outlives the buffer.
  Status allocate(MemorySource &newSource, uint64_t newBytes) {
    source = &newSource;
    bytes = newBytes;
    return source->take(bytes, &memory);
  }
  char *get() const { return static_cast<char *>(memory); }

private:
  MemorySource *source = nullptr;
  void *memory = nullptr;
  uint64_t bytes = 0;
};

} // namespace ddphook::cuda

#endif // DDPHOOK_RUNTIME_BACKENDS_CUDA_KERNELS_MEMORY_SOURCE_H
