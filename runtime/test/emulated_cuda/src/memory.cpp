// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each allocation is one of the C library's, so that ASan sees a kernel that
// leaves it.

#include "memory.h"

#include "fault.h"
#include "stream.h"

#include <cstdlib>
#include <cstring>
#include <map>

using namespace emulated_cuda;

/// What cudaMalloc promises at least.
static constexpr size_t alignment = 256;

namespace {
struct Allocations {
  std::mutex mutex;
  std::map<const char *, Allocation> byBegin;
};
} // namespace

static Allocations &allocations() {
  static auto *allocations = new Allocations();
  return *allocations;
}

bool emulated_cuda::findAllocation(const void *address,
                                   Allocation *allocation) {
  Allocations &all = allocations();
  std::lock_guard<std::mutex> lock(all.mutex);
  auto next = all.byBegin.upper_bound(static_cast<const char *>(address));
  if (next == all.byBegin.begin())
    return false;
  *allocation = std::prev(next)->second;
  return static_cast<const char *>(address) <
         allocation->begin + allocation->bytes;
}

bool emulated_cuda::isDeviceRange(const void *address, size_t bytes) {
  Allocation allocation;
  return findAllocation(address, &allocation) &&
         allocation.type == cudaMemoryTypeDevice &&
         bytes <= static_cast<size_t>(allocation.begin + allocation.bytes -
                                      static_cast<const char *>(address));
}

static cudaError_t allocate(void **result, size_t bytes, cudaMemoryType type) {
  if (!result)
    return cudaErrorInvalidValue;
  Device *device;
  if (cudaError_t error = currentContext(&device))
    return error;
  if (cudaError_t error = refuseDuringCapture())
    return error;
  *result = nullptr;
  if (device->failure != cudaSuccess)
    return device->failure;
  if (bytes == 0)
    return cudaSuccess;
  const bool isDevice = type == cudaMemoryTypeDevice;
  if (isFaultDue(isDevice ? "malloc" : "host_malloc"))
    return cudaErrorMemoryAllocation;

  Allocations &all = allocations();
  std::lock_guard<std::mutex> lock(all.mutex);
  if (isDevice && bytes > device->memoryBytes - device->usedBytes)
    return cudaErrorMemoryAllocation;
  void *memory = nullptr;
  if (posix_memalign(&memory, alignment, bytes) != 0)
    return cudaErrorMemoryAllocation;
  std::memset(memory, 0xff, bytes);
  if (isDevice)
    device->usedBytes += bytes;
  char *begin = static_cast<char *>(memory);
  all.byBegin[begin] = {begin, bytes, type, device};
  *result = memory;
  return cudaSuccess;
}

static cudaError_t release(void *memory, cudaMemoryType type) {
  if (!memory)
    return cudaSuccess;
  Device *device;
  if (cudaError_t error = currentContext(&device))
    return error;
  if (cudaError_t error = refuseDuringCapture())
    return error;
  Allocation allocation;
  if (!findAllocation(memory, &allocation) || allocation.begin != memory ||
      allocation.type != type)
    return cudaErrorInvalidValue;
  // As on a device: what was begun may still use it.
  waitForDevice(allocation.device);
  Allocations &all = allocations();
  std::lock_guard<std::mutex> lock(all.mutex);
  all.byBegin.erase(allocation.begin);
  if (type == cudaMemoryTypeDevice)
    allocation.device->usedBytes -= allocation.bytes;
  std::free(memory);
  return allocation.device->failure;
}

extern "C" {

cudaError_t cudaMalloc(void **memory, size_t bytes) {
  return record(allocate(memory, bytes, cudaMemoryTypeDevice));
}

cudaError_t cudaFree(void *memory) {
  return record(release(memory, cudaMemoryTypeDevice));
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags) {
  if (flags & ~(cudaHostAllocPortable | cudaHostAllocMapped |
                cudaHostAllocWriteCombined))
    return record(cudaErrorInvalidValue);
  return record(allocate(memory, bytes, cudaMemoryTypeHost));
}

cudaError_t cudaMallocHost(void **memory, size_t bytes) {
  return cudaHostAlloc(memory, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *memory) {
  return record(release(memory, cudaMemoryTypeHost));
}

cudaError_t cudaHostGetDevicePointer(void **device, void *host,
                                     unsigned flags) {
  Allocation allocation;
  if (!device || flags != 0 || !findAllocation(host, &allocation) ||
      allocation.type != cudaMemoryTypeHost)
    return record(cudaErrorInvalidValue);
  *device = host;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
  Device *device;
  if (cudaError_t error = currentContext(&device))
    return record(error);
  if (free)
    *free = device->memoryBytes - device->usedBytes;
  if (total)
    *total = device->memoryBytes;
  return recordUnlessFailed(*device, cudaSuccess);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes,
                                     const void *address) {
  Device *device;
  if (cudaError_t error = currentContext(&device))
    return record(error);
  if (!attributes || !address)
    return record(cudaErrorInvalidValue);
  Allocation allocation;
  void *pointer = const_cast<void *>(address);
  if (!findAllocation(address, &allocation))
    // -2: cudaInvalidDeviceId.
    *attributes = {cudaMemoryTypeUnregistered, -2, nullptr, pointer};
  else
    *attributes = {allocation.type, allocation.device->number, pointer,
                   allocation.type == cudaMemoryTypeHost ? pointer : nullptr};
  return cudaSuccess;
}

} // extern "C"
