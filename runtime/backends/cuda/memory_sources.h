// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The sources other than CUDA itself. The device must be current in all calls.

#pragma once

#include "ddphook/runtime/allocator.h"
#include "kernels/memory_source.h"

#include <cuda_runtime_api.h>

#include <map>
#include <string>

namespace ddphook::cuda {

/// If GPU `device` cannot use the memory at `address`, describes it as "host
/// memory" or "memory of GPU 1"; otherwise *what is empty.
Status describeForeign(const void *address, int device, std::string *what);

/// Memory that NCCL can register on all kinds of links.
class NcclMemory final : public MemorySource {
public:
  Status take(uint64_t bytes, void **memory) override;
  void giveBack(void *memory, uint64_t bytes) override;
};

/// The caller's allocator, whose contract is in allocator.h. Verifies
/// everything that it returns.
class CallersMemory final : public MemorySource {
public:
  /// `stream` is the stream of the memory, and has no other work.
  CallersMemory(const ddphook_allocator_t &allocator, int device,
                cudaStream_t stream)
      : allocator(allocator), device(device), stream(stream) {}

  Status take(uint64_t bytes, void **memory) override;
  void giveBack(void *memory, uint64_t bytes) override;

private:
  Status check(void *memory, uint64_t bytes) const;
  bool isInUse(void *memory, uint64_t bytes) const;

  const ddphook_allocator_t allocator;
  const int device;
  const cudaStream_t stream;
  /// The size of the memory at every address that has not been freed.
  std::map<char *, uint64_t> inUse;
};

} // namespace ddphook::cuda
