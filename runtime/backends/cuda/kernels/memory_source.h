// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The source of all GPU memory that the backend and its matrix lists hold: CUDA
// here, NCCL and the caller's allocator in memory_sources.h.

#pragma once

#include "base/status.h"

#include <cstdint>

namespace ddphook::cuda {

/// The alignment of all addresses from a source; cudaMalloc() guarantees it.
constexpr uint64_t kMemoryAlignment = 256;

class MemorySource {
public:
  virtual ~MemorySource() = default;
  /// Allocates `bytes` bytes, at least 1, which any stream may use at once; the
  /// contents are arbitrary. RESOURCE_EXHAUSTED if there is not enough memory.
  virtual Status take(uint64_t bytes, void **memory) = 0;
  /// Frees the memory. The GPU must have finished all work on it.
  virtual void giveBack(void *memory, uint64_t bytes) = 0;
};

/// Returns a source with cudaMalloc() and cudaFree() on the current device.
MemorySource &cudaMemory();

/// Returns RESOURCE_EXHAUSTED for `bytes` bytes; says how many are free.
Status describeExhaustion(uint64_t bytes);

/// A block of memory with one owner; initially empty.
class DeviceBuffer {
public:
  DeviceBuffer() = default;
  ~DeviceBuffer() {
    if (memory)
      source->giveBack(memory, bytes);
  }
  DeviceBuffer(const DeviceBuffer &) = delete;
  DeviceBuffer &operator=(const DeviceBuffer &) = delete;

  /// May be called once. `source` must outlive the buffer.
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
