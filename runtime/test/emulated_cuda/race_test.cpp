// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the suites of the CUDA backend rely on when they run under TSan: two
// streams that use one array without an event between them are reported, and
// with one they are not; and so are the threads of a block and their barriers.

#include "cuda_pipeline_primitives.h"
#include "cuda_runtime.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace {

__global__ void increment(int *data) { ++data[threadIdx.x]; }

/// A rare schedule orders the streams by itself: so often that none is left.
constexpr int attempts = 20;

/// Two streams, three events, and an array that both streams use.
struct Fixture {
  Fixture() {
    for (cudaStream_t &stream : streams)
      cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    for (cudaEvent_t &event : events)
      cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    cudaMalloc(&data, 64 * sizeof(int));
  }
  ~Fixture() {
    for (cudaStream_t stream : streams)
      cudaStreamDestroy(stream);
    for (cudaEvent_t event : events)
      cudaEventDestroy(event);
    cudaFree(data);
  }
  void incrementOn(int stream) {
    cudaLaunchConfig_t config = {};
    config.blockDim = 64;
    config.stream = streams[stream];
    cudaLaunchKernelEx(&config, increment, data);
  }
  /// What `to` is given next comes after what `from` has been given.
  void order(int from, int to, cudaEvent_t event) {
    cudaEventRecord(event, streams[from]);
    cudaStreamWaitEvent(streams[to], event);
  }

  cudaStream_t streams[2];
  cudaEvent_t events[3];
  int *data;
};

void useOnTwoStreams(bool hasEvent) {
  Fixture on;
  for (int i = 0; i < attempts; ++i) {
    on.incrementOn(0);
    if (hasEvent)
      on.order(0, 1, on.events[0]);
    on.incrementOn(1);
    cudaDeviceSynchronize();
  }
}

/// The same as branches of a graph.
void useInAGraph(bool hasEvent) {
  Fixture on;
  cudaStreamBeginCapture(on.streams[0], cudaStreamCaptureModeGlobal);
  on.incrementOn(0);
  on.order(0, 1, on.events[0]);
  on.incrementOn(0);
  if (hasEvent)
    on.order(0, 1, on.events[1]);
  on.incrementOn(1);
  on.order(1, 0, on.events[2]);
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaStreamEndCapture(on.streams[0], &graph);
  cudaGraphInstantiate(&exec, graph, 0);
  for (int i = 0; i < attempts; ++i)
    cudaGraphLaunch(exec, on.streams[0]);
  cudaDeviceSynchronize();
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
}

__global__ void reverse(int *data, bool hasBarrier) {
  __shared__ int copy[64];
  copy[threadIdx.x] = data[threadIdx.x];
  if (hasBarrier)
    __syncthreads();
  data[threadIdx.x] = copy[63 - threadIdx.x];
}

__global__ void reverseWarp(int *data, bool hasBarrier) {
  int *copy = static_cast<int *>(emulatedDynamicShared());
  copy[threadIdx.x] = data[threadIdx.x];
  if (hasBarrier)
    __syncwarp();
  data[threadIdx.x] = copy[threadIdx.x ^ 31];
}

__global__ void reverseCopies(int *data, bool hasBarrier) {
  int *copy = static_cast<int *>(emulatedDynamicShared());
  __pipeline_memcpy_async(copy + threadIdx.x, data + threadIdx.x, sizeof(int));
  __pipeline_commit();
  __pipeline_wait_prior(0);
  if (hasBarrier)
    __syncthreads();
  data[threadIdx.x] = copy[63 - threadIdx.x];
}

__global__ void addUp(int *data, bool isAtomic) {
  if (isAtomic)
    atomicAdd(data, 1);
  else
    ++*data;
}

void launch(void (*kernel)(int *, bool), bool isRight) {
  Fixture on;
  cudaLaunchConfig_t config = {};
  config.gridDim = 3;
  config.blockDim = 64;
  config.dynamicSmemBytes = 64 * sizeof(int);
  cudaLaunchKernelEx(&config, kernel, on.data, isRight);
  cudaDeviceSynchronize();
}

TEST(Race, AnEventPreventsIt) { useOnTwoStreams(true); }
TEST(Race, AnEdgePreventsIt) { useInAGraph(true); }
TEST(Race, ABarrierPreventsIt) { launch(reverse, true); }
TEST(Race, AWarpsBarrierPreventsIt) { launch(reverseWarp, true); }
TEST(Race, ABarrierBehindTheWaitPreventsIt) { launch(reverseCopies, true); }
TEST(Race, AnAtomicPreventsIt) { launch(addUp, true); }

#if defined(__SANITIZE_THREAD__)
#define HAS_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HAS_TSAN 1
#endif
#endif

#ifdef HAS_TSAN
#define EXPECT_RACE(statement)                                                 \
  EXPECT_DEATH(                                                                \
      {                                                                        \
        statement;                                                             \
        std::exit(0);                                                          \
      },                                                                       \
      "data race")

TEST(RaceDeathTest, IsReportedWithout) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_RACE(useOnTwoStreams(false));
  EXPECT_RACE(useInAGraph(false));
  EXPECT_RACE(launch(reverse, false));
  EXPECT_RACE(launch(reverseWarp, false));
  EXPECT_RACE(launch(reverseCopies, false));
  EXPECT_RACE(launch(addUp, false));
}
#else
TEST(Race, IsReportedWithout) { GTEST_SKIP() << "only TSan can see it"; }
#endif

} // namespace
