// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Allocations and their limit, what pointers are, copies and their checks.

#include "cuda_runtime.h"
#include "device_array.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>

using emulated_cuda_test::DeviceArray;

namespace {

TEST(Memory, BeginsPoisonedAndAligned) {
  DeviceArray<unsigned char> data(1001);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(data.data()) % 256, 0u);
  for (unsigned char byte : data.read())
    ASSERT_EQ(byte, 0xff);
}

TEST(Memory, PointersTellWhatTheyAre) {
  cudaPointerAttributes attributes;
  char *device, *pinned;
  auto own = std::make_unique<char[]>(16);
  ASSERT_EQ(cudaMalloc(&device, 100), cudaSuccess);
  ASSERT_EQ(cudaMallocHost(&pinned, 100), cudaSuccess);

  ASSERT_EQ(cudaPointerGetAttributes(&attributes, device + 99), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(attributes.device, 0);
  EXPECT_EQ(attributes.devicePointer, device + 99);
  EXPECT_EQ(attributes.hostPointer, nullptr);

  ASSERT_EQ(cudaPointerGetAttributes(&attributes, pinned), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  EXPECT_EQ(attributes.devicePointer, pinned);
  EXPECT_EQ(attributes.hostPointer, pinned);

  ASSERT_EQ(cudaPointerGetAttributes(&attributes, own.get()), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
  EXPECT_EQ(attributes.devicePointer, nullptr);

  void *mapped;
  EXPECT_EQ(cudaHostGetDevicePointer(&mapped, pinned, 0), cudaSuccess);
  EXPECT_EQ(mapped, pinned);
  EXPECT_EQ(cudaHostGetDevicePointer(&mapped, device, 0),
            cudaErrorInvalidValue);

  EXPECT_EQ(cudaFreeHost(device), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(pinned), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(device + 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(own.get()), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  EXPECT_EQ(cudaFree(device), cudaErrorInvalidValue);
}

TEST(Memory, IsLimited) {
  size_t free, total, left;
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(total, size_t(1) << 30);
  EXPECT_EQ(free, total);
  void *half, *rest;
  ASSERT_EQ(cudaMalloc(&half, total / 2), cudaSuccess);
  ASSERT_EQ(cudaMemGetInfo(&left, &total), cudaSuccess);
  EXPECT_EQ(left, total / 2);
  EXPECT_EQ(cudaMalloc(&rest, total / 2 + 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(rest, nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaFree(half), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&rest, total / 2 + 1), cudaSuccess);
  EXPECT_EQ(cudaFree(rest), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&rest, 0), cudaSuccess);
  EXPECT_EQ(rest, nullptr);
}

TEST(Memory, CopiesCheckWhatTheyAreGiven) {
  char *device, *pinned;
  char own[16] = {};
  ASSERT_EQ(cudaMalloc(&device, 16), cudaSuccess);
  ASSERT_EQ(cudaMallocHost(&pinned, 16), cudaSuccess);
  const auto refused = cudaErrorInvalidValue;
  EXPECT_EQ(cudaMemcpy(device, own, 16, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(device, pinned, 16, cudaMemcpyHostToDevice),
            cudaSuccess);
  EXPECT_EQ(cudaMemcpy(own, device, 16, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(own, pinned, 16, cudaMemcpyHostToHost), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(own, own, 16, cudaMemcpyHostToDevice), refused);
  EXPECT_EQ(cudaMemcpy(device, own, 16, cudaMemcpyDeviceToDevice), refused);
  EXPECT_EQ(cudaMemcpy(own, device, 16, cudaMemcpyHostToHost), refused);
  EXPECT_EQ(cudaMemcpy(device, device, 16, cudaMemcpyDeviceToHost), refused);
  EXPECT_EQ(cudaMemcpy(device + 1, own, 16, cudaMemcpyHostToDevice), refused);
  EXPECT_EQ(cudaMemcpy(own, device + 1, 16, cudaMemcpyDefault), refused);
  EXPECT_EQ(cudaMemcpy(own, nullptr, 16, cudaMemcpyDefault), refused);
  EXPECT_EQ(cudaMemcpy(own, pinned, 16, static_cast<cudaMemcpyKind>(7)),
            cudaErrorInvalidMemcpyDirection);
  EXPECT_EQ(cudaMemset(own, 0, 16), refused);
  EXPECT_EQ(cudaMemset(device, 0, 17), refused);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST(Memory, CopiesFromMemoryThatIsNotPinnedReadItAtOnce) {
  cudaStream_t stream;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  DeviceArray<int> data(100);
  {
    std::vector<int> values(100, 5);
    ASSERT_EQ(cudaMemcpyAsync(data.data(), values.data(), 400,
                              cudaMemcpyHostToDevice, stream),
              cudaSuccess);
    std::fill(values.begin(), values.end(), 6);
  }
  std::vector<int> back(100);
  ASSERT_EQ(cudaMemcpyAsync(back.data(), data.data(), 400,
                            cudaMemcpyDeviceToHost, stream),
            cudaSuccess);
  EXPECT_EQ(back, std::vector<int>(100, 5));
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST(Memory, CopiesFromMemoryThatIsNotPinnedEndWithTheLegacyStream) {
  char *device;
  ASSERT_EQ(cudaMalloc(&device, 16), cudaSuccess);
  std::vector<char> values(16, 5), back(16);
  ASSERT_EQ(cudaMemcpy(device, values.data(), 16, cudaMemcpyHostToDevice),
            cudaSuccess);
  // It was read, but may not have arrived.
  std::fill(values.begin(), values.end(), 6);
  ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  cudaStream_t stream;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
            cudaSuccess);
  ASSERT_EQ(
      cudaMemcpyAsync(back.data(), device, 16, cudaMemcpyDeviceToHost, stream),
      cudaSuccess);
  EXPECT_EQ(back, std::vector<char>(16, 5));
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
}

TEST(Memory, FreeWaitsForWhatRuns) {
  cudaStream_t stream;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
            cudaSuccess);
  void *memory;
  ASSERT_EQ(cudaMalloc(&memory, 1 << 20), cudaSuccess);
  for (int i = 0; i < 20; ++i)
    ASSERT_EQ(cudaMemsetAsync(memory, i, 1 << 20, stream), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

} // namespace
