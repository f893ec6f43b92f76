//===- device_allocations.cpp - memory of a GPU ---------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Allocation is not for steps: it takes as long as CUDA takes.
//
//===----------------------------------------------------------------------===//
#include "device_allocations.h"

#include "cuda_error.h"

#include <algorithm>
#include <cinttypes>

using namespace ddphook;
using namespace ddphook::cuda;

/// What cudaMalloc() and ncclMemAlloc() align to at least.
static constexpr uint64_t naturalAlignment = 256;

static Status describeExhaustion(uint64_t bytes) {
  size_t free = 0, total = 0;
  (void)cudaGetLastError();
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) {
    (void)cudaGetLastError();
    return error(DDPHOOK_RESOURCE_EXHAUSTED,
                 "expected %" PRIu64 " bytes of device memory, but there are "
                 "not as many",
                 bytes);
  }
  return error(DDPHOOK_RESOURCE_EXHAUSTED,
               "expected %" PRIu64 " bytes of device memory, but %zu of %zu "
               "are free",
               bytes, free, total);
}

static Status allocateBase(bool useNccl, uint64_t bytes, void **base) {
  if (useNccl) {
    ncclResult_t result = ncclMemAlloc(base, bytes);
    // NCCL does not say whether it was memory that CUDA lacked.
    if (result == ncclUnhandledCudaError)
      return describeExhaustion(bytes);
    return toStatus(result, nullptr, "allocating device memory");
  }
  cudaError_t result = cudaMalloc(base, bytes);
  if (result == cudaErrorMemoryAllocation)
    return describeExhaustion(bytes);
  return toStatus(result, "allocating device memory");
}

static void freeBase(bool useNccl, void *base) {
  if (useNccl)
    (void)ncclMemFree(base);
  else
    toStatus(cudaFree(base), "freeing device memory").ignore();
}

Status DeviceAllocations::allocate(uint64_t bytes, uint64_t alignment,
                                   cudaStream_t stream, void **memory) {
  const uint64_t slack = alignment > naturalAlignment ? alignment : 0;
  const uint64_t wanted = std::max<uint64_t>(bytes, 1);
  if (wanted > UINT64_MAX - slack)
    return describeExhaustion(bytes);
  Block block = {nullptr, wanted + slack, bytes};
  DDPHOOK_RETURN_IF_ERROR(allocateBase(useNccl, block.baseBytes, &block.base));
  Status zeroed =
      toStatus(cudaMemsetAsync(block.base, 0, block.baseBytes, stream),
               "clearing device memory");
  if (zeroed.isOk())
    zeroed = toStatus(cudaStreamSynchronize(stream), "clearing device memory");
  if (!zeroed.isOk()) {
    freeBase(useNccl, block.base);
    return zeroed;
  }
  uintptr_t address = reinterpret_cast<uintptr_t>(block.base);
  if (slack > 0)
    address = (address + alignment - 1) / alignment * alignment;
  *memory = reinterpret_cast<void *>(address);
  blocks[*memory] = block;
  return Status::ok();
}

const DeviceAllocations::Block *
DeviceAllocations::find(const void *memory) const {
  auto found = blocks.find(memory);
  return found == blocks.end() ? nullptr : &found->second;
}

void DeviceAllocations::release(void *memory) {
  auto found = blocks.find(memory);
  if (found == blocks.end())
    return;
  freeBase(useNccl, found->second.base);
  blocks.erase(found);
}

bool DeviceAllocations::owns(const void *address) const {
  auto next = blocks.upper_bound(address);
  if (next == blocks.begin())
    return false;
  const auto &[begin, block] = *--next;
  return static_cast<const char *>(address) <
         static_cast<const char *>(begin) + std::max<uint64_t>(block.bytes, 1);
}

Status DeviceAllocations::check(const void *address,
                                const char *argument) const {
  if (!address || owns(address))
    return Status::ok();
  cudaPointerAttributes attributes = {};
  DDPHOOK_RETURN_IF_ERROR(toStatus(
      cudaPointerGetAttributes(&attributes, address), "looking at an address"));
  switch (attributes.type) {
  case cudaMemoryTypeManaged:
    return Status::ok();
  case cudaMemoryTypeDevice:
    if (attributes.device == device)
      return Status::ok();
    return error(DDPHOOK_INVALID_ARGUMENT,
                 "expected memory of GPU %d, but got memory of GPU %d "
                 "(argument '%s')",
                 device, attributes.device, argument);
  case cudaMemoryTypeUnregistered:
  case cudaMemoryTypeHost:
    break;
  }
  return error(DDPHOOK_INVALID_ARGUMENT,
               "expected device memory, but got host memory (argument '%s')",
               argument);
}
