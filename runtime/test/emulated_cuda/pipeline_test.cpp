// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// When copies to shared memory arrive, what happens to kernels that use them
// wrongly, and which loads and stores are counted.

#include "cuda_pipeline_primitives.h"
#include "cuda_runtime.h"
#include "device_array.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

using emulated_cuda::Accesses;
using emulated_cuda::Traffic;
using emulated_cuda_test::DeviceArray;

namespace {

constexpr unsigned kPoison = 0xffffffff;

cudaLaunchConfig_t shape(unsigned blocks, unsigned threads) {
  cudaLaunchConfig_t config = {};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.dynamicSmemBytes = 1024;
  return config;
}

unsigned *sharedNumbers() {
  return static_cast<unsigned *>(emulatedDynamicShared());
}

/// Two groups, and one that is committed too late for the last wait.
__global__ void watchArrivals(const unsigned *in, unsigned *out) {
  unsigned *shared = sharedNumbers();
  for (int i = 0; i < 3; ++i)
    shared[i] = 5;
  __pipeline_memcpy_async(shared, in, 4);
  __pipeline_commit();
  __pipeline_memcpy_async(shared + 1, in + 1, 4);
  __pipeline_commit();
  __pipeline_memcpy_async(shared + 2, in + 2, 4);
  int next = 0;
  auto note = [&] {
    for (int i = 0; i < 3; ++i)
      out[next++] = shared[i];
  };
  note();
  __pipeline_wait_prior(1);
  note();
  __pipeline_wait_prior(0);
  note();
  __pipeline_commit();
  __pipeline_wait_prior(0);
  note();
}

TEST(Pipeline, CopiesArriveWhenTheirGroupIsWaitedFor) {
  DeviceArray<unsigned> in(std::vector<unsigned>{10, 11, 12}), out(12);
  cudaLaunchConfig_t config = shape(1, 1);
  ASSERT_EQ(cudaLaunchKernelEx(&config, watchArrivals, in.data(), out.data()),
            cudaSuccess);
  EXPECT_EQ(out.read(), (std::vector<unsigned>{kPoison, kPoison, kPoison, //
                                               10, kPoison, kPoison,      //
                                               10, 11, kPoison,           //
                                               10, 11, 12}));
}

__global__ void copySizes(const unsigned *in, unsigned *out) {
  unsigned *shared = sharedNumbers() + 16 * threadIdx.x;
  __pipeline_memcpy_async(shared, in + 16 * threadIdx.x, 16);
  __pipeline_memcpy_async(shared + 4, in + 4, 8);
  __pipeline_memcpy_async(shared + 8, in + 8, 16, 12);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  const unsigned *other = sharedNumbers() + 16 * (threadIdx.x ^ 1);
  for (int i = 0; i < 12; ++i)
    out[12 * threadIdx.x + i] = other[i];
}

TEST(Pipeline, CopiesOfAllSizesAreSeenBehindABarrier) {
  std::vector<unsigned> values(32);
  std::iota(values.begin(), values.end(), 100);
  DeviceArray<unsigned> in(values), out(24);
  cudaLaunchConfig_t config = shape(1, 2);
  ASSERT_EQ(cudaLaunchKernelEx(&config, copySizes, in.data(), out.data()),
            cudaSuccess);
  const std::vector<unsigned> host = out.read();
  for (unsigned thread = 0; thread < 2; ++thread) {
    const unsigned *got = host.data() + 12 * thread;
    for (unsigned i = 0; i < 4; ++i)
      EXPECT_EQ(got[i], 100 + 16 * (1 - thread) + i);
    EXPECT_EQ(got[4], 104u);
    EXPECT_EQ(got[5], 105u);
    EXPECT_EQ(got[6], kPoison);
    EXPECT_EQ(got[8], 108u);
    for (unsigned i = 9; i < 12; ++i)
      EXPECT_EQ(got[i], 0u);
  }
}

enum Mistake {
  NoWait,
  NoCommit,
  NotAligned,
  NotShared,
  WrongSize,
  WideLoad,
};

__global__ void copyWrongly(unsigned *data, int mistake) {
  unsigned *shared = sharedNumbers();
  switch (mistake) {
  case NoWait:
  case NoCommit:
    __pipeline_memcpy_async(shared, data, 4);
    if (mistake == NoWait)
      __pipeline_commit();
    else
      __pipeline_wait_prior(0);
    return;
  case NotAligned:
    __pipeline_memcpy_async(shared, data + 1, 16);
    return;
  case NotShared:
    __pipeline_memcpy_async(data + 4, data, 4);
    return;
  case WrongSize:
    __pipeline_memcpy_async(shared, data, 12);
    return;
  case WideLoad:
    data[0] = __ldcs(reinterpret_cast<const uint4 *>(data + 1)).x;
    return;
  }
}

void launchWrong(Mistake mistake) {
  DeviceArray<unsigned> data(std::vector<unsigned>(16));
  cudaLaunchConfig_t config = shape(1, 1);
  cudaLaunchKernelEx(&config, copyWrongly, data.data(),
                     static_cast<int>(mistake));
  cudaDeviceSynchronize();
}

TEST(PipelineDeathTest, WrongCopiesEndTheProcess) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const char *left = "thread 0 ends, but has not waited for 1 of its";
  EXPECT_DEATH(launchWrong(NoWait), left);
  EXPECT_DEATH(launchWrong(NoCommit), left);
  EXPECT_DEATH(launchWrong(NotAligned), "16 bytes from .* to ");
  EXPECT_DEATH(launchWrong(NotShared), "in dynamic shared memory");
  EXPECT_DEATH(launchWrong(WrongSize), "12 bytes from .* to ");
  EXPECT_DEATH(launchWrong(WideLoad), "misaligned address .* of 16 bytes");
}

__global__ void useAllKinds(uint4 *wide, float *narrow) {
  const unsigned i = threadIdx.x;
  __stcs(wide + i, __ldca(wide + i));
  __stwb(narrow + i, __ldcs(narrow + i));
  narrow[i] += 1;
  __pipeline_memcpy_async(sharedNumbers() + 4 * i, wide + i, 16, 4);
  __pipeline_commit();
  __pipeline_wait_prior(0);
}

void expectAccesses(const Accesses &got, uint64_t count, uint64_t bytes) {
  EXPECT_EQ(got.count, count);
  EXPECT_EQ(got.bytes, bytes);
}

TEST(Traffic, EveryRecordedLaunchIsCounted) {
  DeviceArray<uint4> wide(std::vector<uint4>(32));
  DeviceArray<float> narrow(std::vector<float>(32));
  auto launch = [&](unsigned blocks) {
    cudaLaunchConfig_t config = shape(blocks, 32);
    ASSERT_EQ(
        cudaLaunchKernelEx(&config, useAllKinds, wide.data(), narrow.data()),
        cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  };
  launch(1);
  emulated_cuda::recordTraffic(true);
  EXPECT_TRUE(emulated_cuda::takeTraffic().empty());
  launch(1);
  launch(3);
  const std::vector<Traffic> launches = emulated_cuda::takeTraffic();
  ASSERT_EQ(launches.size(), 2u);
  for (uint64_t i : {0, 1}) {
    const uint64_t threads = i == 0 ? 32 : 96;
    const Traffic &traffic = launches[i];
    expectAccesses(traffic.loads, 2 * threads, 28 * threads);
    expectAccesses(traffic.streamedLoads, threads, 4 * threads);
    expectAccesses(traffic.stores, threads, 4 * threads);
    expectAccesses(traffic.streamedStores, threads, 16 * threads);
  }
  launch(1);
  emulated_cuda::recordTraffic(false);
  launch(1);
  EXPECT_TRUE(emulated_cuda::takeTraffic().empty());
}

} // namespace
