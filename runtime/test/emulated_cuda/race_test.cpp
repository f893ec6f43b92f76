//===- race_test.cpp - a missing event is a race --------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the suites of the CUDA backend rely on when they run under TSan: two
// streams that use one array without an event between them are reported, and
// with one they are not.
//
//===----------------------------------------------------------------------===//
#include "cuda_runtime.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace {

__global__ void increment(int *data) { ++data[threadIdx.x]; }

/// A rare schedule orders the streams by itself: so often that none is left.
constexpr int attempts = 20;

void useOnTwoStreams(bool hasEvent) {
  cudaStream_t streams[2];
  cudaEvent_t event;
  int *data;
  cudaMalloc(&data, 64 * sizeof(int));
  for (cudaStream_t &stream : streams)
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  for (int i = 0; i < attempts; ++i) {
    cudaLaunchConfig_t config = {};
    config.blockDim = 64;
    config.stream = streams[0];
    cudaLaunchKernelEx(&config, increment, data);
    cudaEventRecord(event, streams[0]);
    if (hasEvent)
      cudaStreamWaitEvent(streams[1], event);
    config.stream = streams[1];
    cudaLaunchKernelEx(&config, increment, data);
    cudaDeviceSynchronize();
  }
}

TEST(Race, AnEventPreventsIt) { useOnTwoStreams(true); }

#if defined(__SANITIZE_THREAD__)
#define HAS_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HAS_TSAN 1
#endif
#endif

#ifdef HAS_TSAN
TEST(RaceDeathTest, WithoutAnEventItIsReported) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        useOnTwoStreams(false);
        std::exit(0);
      },
      "data race");
}
#else
TEST(Race, WithoutAnEventItIsReported) {
  GTEST_SKIP() << "only TSan can see it";
}
#endif

} // namespace
