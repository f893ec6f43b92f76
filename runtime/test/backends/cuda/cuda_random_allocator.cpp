// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Memory of the emulated device is the host's, which poisons it directly.

#include "backends/cuda/cuda_random_allocator.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

using namespace ddphook::test;

static constexpr char kNew = 0x7f;
static constexpr char kOld = 0x5a;

RandomAllocator::RandomAllocator(uint64_t seed, int64_t failAt)
    : failAt(failAt), random(seed) {
  table.struct_size = sizeof(table);
  table.user = this;
  table.alloc = [](void *self, size_t bytes, int32_t device, void *stream) {
    return static_cast<RandomAllocator *>(self)->allocate(bytes, device,
                                                          stream);
  };
  table.free = [](void *self, void *memory, size_t bytes, int32_t device,
                  void *stream) {
    static_cast<RandomAllocator *>(self)->release(memory, bytes, device,
                                                  stream);
  };
}

RandomAllocator::~RandomAllocator() {
  for (const auto &[memory, block] : blocks)
    if (!block.isOut)
      (void)cudaFree(memory);
}

void RandomAllocator::complain(const std::string &text) {
  if (first.empty())
    first = "allocator: " + text;
}

int RandomAllocator::draw(int below) {
  random = random * 6364136223846793005u + 1442695040888963407u;
  return static_cast<int>((random >> 33) % static_cast<uint64_t>(below));
}

/// With `mutex` held.
void RandomAllocator::enter(int32_t device, void *stream) {
  int current = -1;
  (void)cudaGetDevice(&current);
  if (current != device)
    complain("called with another current device");
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  if (mode != cudaStreamCaptureModeRelaxed)
    complain("called with a capture mode that is not relaxed");
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  if (++inCall[stream] > 1)
    complain("called by two threads at a time for one context");
}

void RandomAllocator::leave(void *stream) { --inCall[stream]; }

void RandomAllocator::poison(void *argument) {
  const auto &work = *static_cast<const Poison *>(argument);
  std::this_thread::sleep_for(std::chrono::microseconds(work.microseconds));
  std::memset(work.memory, kNew, work.bytes);
}

void *RandomAllocator::allocate(size_t bytes, int32_t device, void *stream) {
  int microseconds = 0;
  {
    std::lock_guard<std::mutex> lock(mutex);
    enter(device, stream);
    if (bytes == 0)
      complain("asked for no bytes");
    microseconds = draw(4) == 0 ? draw(2000) : 0;
    if (++allocations == failAt) {
      leave(stream);
      return nullptr;
    }
  }
  std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
  void *memory = nullptr;
  if (cudaMalloc(&memory, bytes) != cudaSuccess) {
    (void)cudaGetLastError();
    memory = nullptr;
  }
  std::lock_guard<std::mutex> lock(mutex);
  if (memory) {
    poisons.push_back({memory, bytes, microseconds});
    (void)cudaLaunchHostFunc(static_cast<cudaStream_t>(stream), poison,
                             &poisons.back());
    blocks[static_cast<char *>(memory)] = {bytes, device, stream, true};
  }
  leave(stream);
  return memory;
}

void RandomAllocator::release(void *memory, size_t bytes, int32_t device,
                              void *stream) {
  std::lock_guard<std::mutex> lock(mutex);
  enter(device, stream);
  auto found = blocks.find(static_cast<char *>(memory));
  if (found == blocks.end() || !found->second.isOut) {
    complain("given back what is not out");
  } else {
    Block &block = found->second;
    if (block.bytes != bytes || block.device != device ||
        block.stream != stream)
      complain("given back with other words than it was asked for");
    block.isOut = false;
    std::memset(memory, kOld, block.bytes);
  }
  leave(stream);
}

std::string RandomAllocator::complaint(bool isAll) {
  std::lock_guard<std::mutex> lock(mutex);
  for (const auto &[memory, block] : blocks) {
    const char *begin = memory;
    if (block.isOut && isAll)
      complain(std::to_string(block.bytes) + " bytes of GPU " +
               std::to_string(block.device) + " were not given back");
    if (!block.isOut && !std::all_of(begin, begin + block.bytes,
                                     [](char each) { return each == kOld; }))
      complain("memory was written after it was given back");
  }
  return first;
}
