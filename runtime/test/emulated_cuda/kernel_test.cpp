// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Grids, barriers, shared memory, warp operations, atomics, and what happens to
// kernels that are wrong.

#include "cuda_runtime.h"
#include "device_array.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <vector>

using emulated_cuda_test::DeviceArray;

namespace {

cudaLaunchConfig_t shape(dim3 grid, dim3 block, size_t dynamicBytes = 0) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = dynamicBytes;
  return config;
}

__global__ void whereAmI(uint4 *out) {
  unsigned block =
      (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  unsigned thread =
      (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  out[block * (blockDim.x * blockDim.y * blockDim.z) + thread] =
      make_uint4(threadIdx.x, threadIdx.y, threadIdx.z, block);
}

TEST(Kernel, EveryThreadOfTheGridRunsOnce) {
  const dim3 grid(3, 2, 2), block(5, 3, 2);
  DeviceArray<uint4> out(12 * 30);
  cudaLaunchConfig_t config = shape(grid, block);
  ASSERT_EQ(cudaLaunchKernelEx(&config, whereAmI, out.data()), cudaSuccess);
  std::vector<uint4> host = out.read();
  for (unsigned i = 0; i < host.size(); ++i) {
    unsigned thread = i % 30;
    EXPECT_EQ(host[i].x, thread % 5);
    EXPECT_EQ(host[i].y, thread / 5 % 3);
    EXPECT_EQ(host[i].z, thread / 15);
    EXPECT_EQ(host[i].w, i / 30);
  }
}

template <int size>
__device__ float sumOfBlock(float value) {
  __shared__ float partial[size / 32];
  for (int offset = 16; offset > 0; offset /= 2)
    value += __shfl_down_sync(0xffffffff, value, offset);
  if (threadIdx.x % 32 == 0)
    partial[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x < 32) {
    value = threadIdx.x < size / 32 ? partial[threadIdx.x] : 0;
    for (int offset = 16; offset > 0; offset /= 2)
      value += __shfl_xor_sync(0xffffffff, value, offset);
  }
  __syncthreads();
  return value;
}

__global__ void __launch_bounds__(256)
    sums(const float *__restrict__ in, float *__restrict__ out) {
  float value = __ldcs(in + blockIdx.x * 256 + threadIdx.x);
  float sum = sumOfBlock<256>(value);
  if (threadIdx.x == 0)
    __stcs(out + blockIdx.x, sum);
}

TEST(Kernel, ReducesABlockWithShufflesAndSharedMemory) {
  constexpr int blocks = 1000;
  std::vector<float> values(blocks * 256);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i * 7919 % 1001);
  DeviceArray<float> in(values), out(blocks);
  cudaLaunchConfig_t config = shape(blocks, 256);
  ASSERT_EQ(cudaLaunchKernelEx(&config, sums, in.data(), out.data()),
            cudaSuccess);
  std::vector<float> host = out.read();
  for (int i = 0; i < blocks; ++i) {
    auto first = values.begin() + i * 256;
    EXPECT_EQ(host[i], std::accumulate(first, first + 256, 0.0f)) << i;
  }
}

__global__ void reverseInShared(int *data) {
  int *shared = static_cast<int *>(emulatedDynamicShared());
  shared[threadIdx.x] = data[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  data[blockIdx.x * blockDim.x + threadIdx.x] =
      shared[blockDim.x - 1 - threadIdx.x];
}

TEST(Kernel, UsesDynamicSharedMemory) {
  std::vector<int> values(3 * 1024);
  std::iota(values.begin(), values.end(), 0);
  DeviceArray<int> data(values);
  cudaLaunchConfig_t config = shape(3, 1024, 1024 * sizeof(int));
  ASSERT_EQ(cudaLaunchKernelEx(&config, reverseInShared, data.data()),
            cudaSuccess);
  std::vector<int> host = data.read();
  for (int i = 0; i < 3 * 1024; ++i)
    EXPECT_EQ(host[i], i / 1024 * 1024 + 1023 - i % 1024);
}

__global__ void readUnwrittenShared(unsigned *out) {
  __shared__ unsigned never[8];
  unsigned *dynamic = static_cast<unsigned *>(emulatedDynamicShared());
  out[2 * blockIdx.x] = never[3];
  out[2 * blockIdx.x + 1] = dynamic[1];
  never[3] = dynamic[1] = 5;
}

TEST(Kernel, SharedMemoryBeginsPoisonedInEveryBlock) {
  DeviceArray<unsigned> out(8);
  cudaLaunchConfig_t config = shape(4, 1, 64);
  ASSERT_EQ(cudaLaunchKernelEx(&config, readUnwrittenShared, out.data()),
            cudaSuccess);
  std::vector<unsigned> host = out.read();
  for (int i = 0; i < 4; ++i) {
#ifdef __clang__
    EXPECT_EQ(host[2 * i], 0xffffffffu) << i;
#endif
    EXPECT_EQ(host[2 * i + 1], 0xffffffffu) << i;
  }
}

__global__ void votes(int *out) {
  int i = threadIdx.x;
  out[6 * i] = __syncthreads_or(i == 33);
  out[6 * i + 1] = __syncthreads_and(i != 33);
  out[6 * i + 2] = __syncthreads_count(i % 3 == 0);
  out[6 * i + 3] = static_cast<int>(__ballot_sync(0xffffffff, i % 2));
  out[6 * i + 4] = __any_sync(0xffffffff, i == 33);
  out[6 * i + 5] = __all_sync(0xffffffff, i < 64);
}

TEST(Kernel, Votes) {
  DeviceArray<int> out(6 * 96);
  cudaLaunchConfig_t config = shape(1, 96);
  ASSERT_EQ(cudaLaunchKernelEx(&config, votes, out.data()), cudaSuccess);
  std::vector<int> host = out.read();
  for (int i = 0; i < 96; ++i) {
    EXPECT_EQ(host[6 * i], 1);
    EXPECT_EQ(host[6 * i + 1], 0);
    EXPECT_EQ(host[6 * i + 2], 32);
    EXPECT_EQ(static_cast<unsigned>(host[6 * i + 3]), 0xaaaaaaaau);
    EXPECT_EQ(host[6 * i + 4], i / 32 == 1);
    EXPECT_EQ(host[6 * i + 5], i < 64);
  }
}

__global__ void shuffles(long long *out) {
  int i = threadIdx.x;
  long long *mine = out + 6 * i;
  mine[0] = __shfl_sync(0xffffffff, 100 + i, 5);
  mine[1] = __shfl_sync(0xffffffff, 100ll + i, 9, 8);
  mine[2] = __shfl_up_sync(0xffffffff, 100u + i, 3, 16);
  mine[3] = static_cast<long long>(__shfl_down_sync(0xffffffff, 100.0 + i, 3));
  mine[4] = __shfl_xor_sync(0xffffffff, 100 + i, 17);
  // Half a warp on its own, and the other half's end before it.
  mine[5] = i < 16 ? __shfl_xor_sync(0x0000ffff, 100 + i, 1) : -1;
}

TEST(Kernel, Shuffles) {
  DeviceArray<long long> out(6 * 32);
  cudaLaunchConfig_t config = shape(1, 32);
  ASSERT_EQ(cudaLaunchKernelEx(&config, shuffles, out.data()), cudaSuccess);
  std::vector<long long> host = out.read();
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(host[6 * i], 105);
    EXPECT_EQ(host[6 * i + 1], 100 + i / 8 * 8 + 1);
    EXPECT_EQ(host[6 * i + 2], 100 + (i % 16 >= 3 ? i - 3 : i));
    EXPECT_EQ(host[6 * i + 3], 100 + (i + 3 < 32 ? i + 3 : i));
    EXPECT_EQ(host[6 * i + 4], 100 + (i ^ 17));
    EXPECT_EQ(host[6 * i + 5], i < 16 ? 100 + (i ^ 1) : -1);
  }
}

__global__ void countAtomically(unsigned *counter, unsigned *last) {
  __shared__ bool isLast;
  if (threadIdx.x == 0) {
    __threadfence();
    isLast = atomicAdd(counter, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (isLast)
    atomicAdd(last, 1u);
}

TEST(Kernel, TheLastBlockKnowsIt) {
  DeviceArray<unsigned> counters(std::vector<unsigned>{0, 0});
  cudaLaunchConfig_t config = shape(37, 64);
  ASSERT_EQ(cudaLaunchKernelEx(&config, countAtomically, counters.data(),
                               counters.data() + 1),
            cudaSuccess);
  EXPECT_EQ(counters.read(), (std::vector<unsigned>{37, 64}));
}

__global__ void endEarly(int *out) {
  if (threadIdx.x % 2)
    return;
  // Those that have ended are not waited for.
  __syncthreads();
  out[threadIdx.x] = __shfl_sync(0xffffffff, 7, 0);
}

TEST(Kernel, ThreadsThatHaveEndedAreNotWaitedFor) {
  DeviceArray<int> out(std::vector<int>(64, 0));
  cudaLaunchConfig_t config = shape(1, 64);
  ASSERT_EQ(cudaLaunchKernelEx(&config, endEarly, out.data()), cudaSuccess);
  std::vector<int> host = out.read();
  for (int i = 0; i < 64; ++i)
    EXPECT_EQ(host[i], i % 2 ? 0 : 7);
}

__global__ void waitForEachOther() {
  if (threadIdx.x == 0)
    __syncwarp();
  else
    __syncthreads();
}

__global__ void barriersAtTwoPlaces() {
  if (threadIdx.x < 32)
    __syncthreads();
  else
    __syncthreads();
}

__global__ void wrongMask() { __syncwarp(0xfffffffe); }

template <typename T>
void runAlone(T *kernel, unsigned threads) {
  cudaLaunchConfig_t config = shape(1, threads);
  cudaLaunchKernelEx(&config, kernel);
  cudaDeviceSynchronize();
}

TEST(KernelDeathTest, WrongKernelsEndTheProcessWithTheirPlace) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(runAlone(waitForEachOther, 64),
               "deadlock in block \\(0, 0, 0\\).*64 threads: 0 have ended");
  EXPECT_DEATH(runAlone(barriersAtTwoPlaces, 64),
               "thread 3[12] is in __syncthreads at .*kernel_test.cpp:");
  EXPECT_DEATH(runAlone(wrongMask, 32), "lacks its own lane 0");
}

__global__ void meet() { __syncthreads(); }

/// Leaves the thread of a stream that had a fiber for each of 1024 threads to
/// its end.
void endWithStream() {
  cudaStream_t stream;
  cudaLaunchConfig_t config = shape(1, 1024);
  bool isGood = cudaStreamCreate(&stream) == cudaSuccess;
  config.stream = stream;
  isGood = isGood && cudaLaunchKernelEx(&config, meet) == cudaSuccess &&
           cudaStreamSynchronize(stream) == cudaSuccess &&
           cudaStreamDestroy(stream) == cudaSuccess;
  std::exit(isGood ? 0 : 1);
}

TEST(KernelDeathTest, TheProcessEndsAfterItsStreams) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(endWithStream(), testing::ExitedWithCode(0), "");
}

__global__ void recordOrder(int *next, int *order) {
  order[atomicAdd(next, 1)] = static_cast<int>(blockIdx.x * 4 + threadIdx.x);
}

TEST(Kernel, RunsInTheOrderThatWasAskedFor) {
  const char *reverse = std::getenv("EMULATED_CUDA_ORDER");
  DeviceArray<int> next(std::vector<int>{0}), order(12);
  cudaLaunchConfig_t config = shape(3, 4);
  ASSERT_EQ(cudaLaunchKernelEx(&config, recordOrder, next.data(), order.data()),
            cudaSuccess);
  std::vector<int> expected(12);
  std::iota(expected.begin(), expected.end(), 0);
  if (reverse)
    std::reverse(expected.begin(), expected.end());
  EXPECT_EQ(order.read(), expected);
}

TEST(Kernel, LaunchesOfBadShapesAreRefused) {
  auto launch = [](dim3 grid, dim3 block, size_t bytes) {
    DeviceArray<int> data(4096);
    cudaLaunchConfig_t config = shape(grid, block, bytes);
    return cudaLaunchKernelEx(&config, reverseInShared, data.data());
  };
  EXPECT_EQ(launch(0, 32, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(1, 1025, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(1, dim3(32, 32, 2), 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(dim3(1, 65536), 32, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(1, 32, 49153), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaFuncSetAttribute(reverseInShared,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 227 << 10),
            cudaSuccess);
  EXPECT_EQ(launch(1, 32, 227 << 10), cudaSuccess);
  EXPECT_EQ(cudaFuncSetAttribute(reverseInShared,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 (227 << 10) + 1),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

} // namespace
