// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Requests memory and checks what it gets.

#include "memory_sources.h"

#include "cuda_error.h"
#include "detached_call.h"
#include "thread_state.h"

#include <cinttypes>

using namespace ddphook;
using namespace ddphook::cuda;

Status cuda::describeForeign(const void *address, int device,
                             std::string *what) {
  cudaPointerAttributes attributes = {};
  DDPHOOK_TRY(toStatus(cudaPointerGetAttributes(&attributes, address),
                       "querying the attributes of an address"));
  what->clear();
  switch (attributes.type) {
  case cudaMemoryTypeManaged:
    break;
  case cudaMemoryTypeDevice:
    if (attributes.device != device)
      *what = "memory of GPU " + std::to_string(attributes.device);
    break;
  case cudaMemoryTypeUnregistered:
  case cudaMemoryTypeHost:
    *what = "host memory";
    break;
  }
  return Status::ok();
}

Status NcclMemory::take(uint64_t bytes, void **memory) {
  const ncclResult_t result = ncclMemAlloc(memory, bytes);
  // NCCL does not say if CUDA was out of memory.
  if (result == ncclUnhandledCudaError)
    return describeExhaustion(bytes);
  return toStatus(result, nullptr, "allocating device memory");
}

void NcclMemory::giveBack(void *memory, uint64_t) {
  callWhileIdle([memory] { (void)ncclMemFree(memory); });
}

bool CallersMemory::isInUse(void *memory, uint64_t bytes) const {
  char *begin = static_cast<char *>(memory), *end = begin + bytes;
  // Blocks do not overlap: the last one that begins before `end` ends last.
  auto next = inUse.lower_bound(end);
  if (next == inUse.begin())
    return false;
  --next;
  return next->first + next->second > begin;
}

/// Returns an error unless the backend can use the allocator's memory.
Status CallersMemory::check(void *memory, uint64_t bytes) const {
  if (reinterpret_cast<uintptr_t>(memory) % kMemoryAlignment != 0)
    return error(
        DDPHOOK_INVALID_ARGUMENT,
        "expected the caller's allocator to return an address that %" PRIu64
        " divides, but got %p",
        kMemoryAlignment, memory);
  // Check both ends: a block may be shorter than requested.
  const char *begin = static_cast<const char *>(memory);
  std::string foreign;
  for (const char *end : {begin, begin + bytes - 1}) {
    DDPHOOK_TRY(describeForeign(end, device, &foreign));
    if (!foreign.empty())
      return invalid("expected the caller's allocator to return %" PRIu64
                     " bytes of memory of GPU %d, but got %s",
                     bytes, device, foreign.c_str());
  }
  // Wait for the allocator's own work on the stream, if there is any.
  return toStatus(cudaStreamSynchronize(stream),
                  "waiting for memory of the caller's allocator");
}

Status CallersMemory::take(uint64_t bytes, void **memory) {
  *memory = nullptr;
  void *given = allocator.alloc(allocator.user, bytes, device, stream);
  if (!given) {
    // A failed GPU has no memory for anybody.
    if (const cudaError_t state = queryStream(stream);
        state != cudaErrorNotReady)
      DDPHOOK_TRY(toStatus(state, "asking the caller's allocator for memory"));
    return error(DDPHOOK_RESOURCE_EXHAUSTED,
                 "expected the caller's allocator to return %" PRIu64
                 " bytes of memory of GPU %d, but it returned null",
                 bytes, device);
  }
  // Do not free it: that would free memory in use.
  if (isInUse(given, bytes))
    return invalid(
        "expected the caller's allocator to return unused memory, but "
        "it returned %p, which is in use",
        given);
  Status status = check(given, bytes);
  if (!status.isOk()) {
    allocator.free(allocator.user, given, bytes, device, stream);
    return status;
  }
  inUse[static_cast<char *>(given)] = bytes;
  *memory = given;
  return Status::ok();
}

void CallersMemory::giveBack(void *memory, uint64_t bytes) {
  inUse.erase(static_cast<char *>(memory));
  allocator.free(allocator.user, memory, bytes, device, stream);
}
