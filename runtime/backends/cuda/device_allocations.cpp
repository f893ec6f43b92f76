// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Not for use in steps: allocations take as long as CUDA takes.

#include "device_allocations.h"

#include "cuda_error.h"
#include "memory_sources.h"

#include <algorithm>

using namespace ddphook;
using namespace ddphook::cuda;

Status DeviceAllocations::allocate(uint64_t bytes, uint64_t alignment,
                                   cudaStream_t stream, void **memory) {
  const uint64_t slack = alignment > kMemoryAlignment ? alignment : 0;
  const uint64_t wanted = std::max<uint64_t>(bytes, 1);
  if (wanted > UINT64_MAX - slack)
    return describeExhaustion(bytes);
  Block block = {nullptr, wanted + slack, bytes};
  DDPHOOK_TRY(source.take(block.baseBytes, &block.base));
  Status zeroed =
      toStatus(cudaMemsetAsync(block.base, 0, block.baseBytes, stream),
               "clearing device memory");
  if (zeroed.isOk())
    zeroed = toStatus(cudaStreamSynchronize(stream), "clearing device memory");
  if (!zeroed.isOk()) {
    source.giveBack(block.base, block.baseBytes);
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
  source.giveBack(found->second.base, found->second.baseBytes);
  blocks.erase(found);
}

void DeviceAllocations::releaseAll() {
  for (const auto &[memory, block] : blocks)
    source.giveBack(block.base, block.baseBytes);
  blocks.clear();
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
  std::string foreign;
  DDPHOOK_TRY(describeForeign(address, device, &foreign));
  if (foreign.empty())
    return Status::ok();
  return invalid("expected memory of GPU %d, but got %s (argument '%s')",
                 device, foreign.c_str(), argument);
}
