// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Implements a source with cudaMalloc() and cudaFree().

#include "memory_source.h"

#include "../detached_call.h"

#include <cuda_runtime_api.h>

#include <cinttypes>

using namespace ddphook;
using namespace ddphook::cuda;

Status cuda::describeExhaustion(uint64_t bytes) {
  size_t free = 0, total = 0;
  (void)cudaGetLastError();
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) {
    (void)cudaGetLastError();
    return error(DDPHOOK_RESOURCE_EXHAUSTED,
                 "expected %" PRIu64
                 " bytes of device memory, but the device has fewer",
                 bytes);
  }
  return error(DDPHOOK_RESOURCE_EXHAUSTED,
               "expected %" PRIu64 " bytes of device memory, but %zu of %zu "
               "are free",
               bytes, free, total);
}

namespace {

class CudaMemory final : public MemorySource {
public:
  Status take(uint64_t bytes, void **memory) override {
    cudaError_t code = cudaMalloc(memory, bytes);
    if (code == cudaSuccess)
      return Status::ok();
    *memory = nullptr;
    if (code == cudaErrorMemoryAllocation)
      return describeExhaustion(bytes);
    // Clear the error, so that later launches do not report it.
    (void)cudaGetLastError();
    return error(DDPHOOK_INTERNAL, "allocating device memory: %s (%s)",
                 cudaGetErrorString(code), cudaGetErrorName(code));
  }
  void giveBack(void *memory, uint64_t) override {
    callWhileIdle([memory] { (void)cudaFree(memory); });
  }
};

} // namespace

MemorySource &cuda::cudaMemory() {
  static CudaMemory memory;
  return memory;
}
