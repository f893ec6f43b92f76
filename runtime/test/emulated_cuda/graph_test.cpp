// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a capture records, that launches repeat it, and what may not be done
// meanwhile.

#include "cuda_runtime.h"
#include "device_array.h"

#include <gtest/gtest.h>

#include <thread>

using emulated_cuda_test::DeviceArray;

namespace {

__global__ void addTo(int *sum, const int *value) { *sum += *value; }

class Graph : public testing::Test {
protected:
  void SetUp() override {
    for (cudaStream_t *made : {&stream, &other})
      ASSERT_EQ(cudaStreamCreateWithFlags(made, cudaStreamNonBlocking),
                cudaSuccess);
    for (cudaEvent_t *made : {&event, &back})
      ASSERT_EQ(cudaEventCreateWithFlags(made, cudaEventDisableTiming),
                cudaSuccess);
  }
  void TearDown() override {
    for (cudaStream_t made : {stream, other})
      EXPECT_EQ(cudaStreamDestroy(made), cudaSuccess);
    for (cudaEvent_t made : {event, back})
      EXPECT_EQ(cudaEventDestroy(made), cudaSuccess);
  }

  cudaError_t begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
    return cudaStreamBeginCapture(stream, mode);
  }
  cudaError_t add(cudaStream_t on, int value) {
    cudaLaunchConfig_t config = {};
    config.stream = on;
    return cudaLaunchKernelEx(&config, addTo, data.data(), data.data() + value);
  }
  /// Ends a capture that a forbidden call has spoilt.
  void expectSpoilt() {
    cudaStreamCaptureStatus status;
    EXPECT_EQ(cudaStreamIsCapturing(stream, &status), cudaSuccess);
    EXPECT_EQ(status, cudaStreamCaptureStatusInvalidated);
    cudaGraph_t graph;
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph),
              cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(graph, nullptr);
    EXPECT_EQ(cudaStreamIsCapturing(stream, &status), cudaSuccess);
    EXPECT_EQ(status, cudaStreamCaptureStatusNone);
  }

  /// A sum, and what is added to it.
  DeviceArray<int> data{std::vector<int>{0, 1, 20, 300}};
  cudaStream_t stream, other;
  cudaEvent_t event, back;
};

TEST_F(Graph, RunsNothingNowAndAllInEveryLaunch) {
  ASSERT_EQ(begin(), cudaSuccess);
  cudaStreamCaptureStatus status;
  EXPECT_EQ(cudaStreamIsCapturing(stream, &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  ASSERT_EQ(add(stream, 1), cudaSuccess);
  // A branch on another stream, and back.
  ASSERT_EQ(cudaEventRecord(event, stream), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(other, event), cudaSuccess);
  ASSERT_EQ(add(other, 2), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(back, other), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(stream, back), cudaSuccess);
  ASSERT_EQ(add(stream, 3), cudaSuccess);
  cudaGraph_t graph;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  EXPECT_EQ(data.read()[0], 0);

  size_t count = 0;
  EXPECT_EQ(cudaGraphGetNodes(graph, nullptr, &count), cudaSuccess);
  EXPECT_EQ(count, 3u);
  cudaGraphExec_t exec;
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  ASSERT_EQ(cudaGraphUpload(exec, stream), cudaSuccess);
  for (int i = 0; i < 3; ++i)
    ASSERT_EQ(cudaGraphLaunch(exec, other), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(other), cudaSuccess);
  EXPECT_EQ(data.read()[0], 3 * 321);
  ASSERT_EQ(cudaGraphLaunch(exec, other), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(other), cudaSuccess);
  EXPECT_EQ(data.read()[0], 4 * 321);
}

TEST_F(Graph, ABranchHasToComeBack) {
  ASSERT_EQ(begin(), cudaSuccess);
  ASSERT_EQ(add(stream, 1), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event, stream), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(other, event), cudaSuccess);
  ASSERT_EQ(add(other, 2), cudaSuccess);
  cudaGraph_t graph;
  EXPECT_EQ(cudaStreamEndCapture(other, &graph),
            cudaErrorStreamCaptureUnmatched);
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph),
            cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(graph, nullptr);
  // Both streams are ordinary ones again.
  EXPECT_EQ(add(other, 2), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(other), cudaSuccess);
  EXPECT_EQ(data.read()[0], 20);
}

TEST_F(Graph, WaitingForItselfSpoilsTheCapture) {
  ASSERT_EQ(begin(), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
  expectSpoilt();
  ASSERT_EQ(begin(), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorStreamCaptureUnsupported);
  expectSpoilt();
  ASSERT_EQ(begin(), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
  expectSpoilt();
  ASSERT_EQ(begin(), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event, stream), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorCapturedEvent);
  expectSpoilt();
}

TEST_F(Graph, AllocationsSpoilTheCapture) {
  void *memory;
  ASSERT_EQ(begin(), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&memory, 16), cudaErrorStreamCaptureUnsupported);
  expectSpoilt();
  ASSERT_EQ(begin(), cudaSuccess);
  std::thread([&] {
    EXPECT_EQ(cudaMalloc(&memory, 16), cudaErrorStreamCaptureUnsupported);
  }).join();
  expectSpoilt();
}

TEST_F(Graph, ModesAllowAllocations) {
  cudaGraph_t graph;
  void *memory;
  ASSERT_EQ(begin(cudaStreamCaptureModeThreadLocal), cudaSuccess);
  std::thread([&] { EXPECT_EQ(cudaMalloc(&memory, 16), cudaSuccess); }).join();
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  ASSERT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  EXPECT_EQ(mode, cudaStreamCaptureModeGlobal);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  ASSERT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  std::thread([&] {
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph),
              cudaErrorStreamCaptureWrongThread);
  }).join();
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(Graph, TheLegacyStreamMayNotBeUsed) {
  cudaStream_t blocking;
  ASSERT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeRelaxed),
            cudaErrorStreamCaptureUnsupported);
  ASSERT_EQ(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed),
            cudaSuccess);
  EXPECT_EQ(add(nullptr, 1), cudaErrorStreamCaptureImplicit);
  cudaGraph_t graph;
  EXPECT_EQ(cudaStreamEndCapture(blocking, &graph),
            cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaStreamDestroy(blocking), cudaSuccess);
}

TEST_F(Graph, EventsFromOutsideAreRefused) {
  ASSERT_EQ(cudaEventRecord(event, other), cudaSuccess);
  ASSERT_EQ(begin(), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(stream, event),
            cudaErrorStreamCaptureIsolation);
  expectSpoilt();
}

TEST_F(Graph, TwoCapturesCannotMerge) {
  ASSERT_EQ(begin(), cudaSuccess);
  EXPECT_EQ(begin(), cudaErrorIllegalState);
  ASSERT_EQ(cudaStreamBeginCapture(other, cudaStreamCaptureModeGlobal),
            cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event, other), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(stream, event), cudaErrorStreamCaptureMerge);
  expectSpoilt();
  cudaGraph_t graph;
  EXPECT_EQ(cudaStreamEndCapture(other, &graph),
            cudaErrorStreamCaptureInvalidated);
}

TEST_F(Graph, ACaptureEndsWithItsStream) {
  cudaStream_t origin;
  void *memory;
  ASSERT_EQ(cudaStreamCreateWithFlags(&origin, cudaStreamNonBlocking),
            cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(origin, cudaStreamCaptureModeGlobal),
            cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event, origin), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(stream, event), cudaSuccess);
  ASSERT_EQ(cudaStreamDestroy(origin), cudaSuccess);
  EXPECT_EQ(add(stream, 1), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&memory, 16), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

TEST_F(Graph, CopiesReadTheirSourceInEveryLaunch) {
  int *pinned;
  ASSERT_EQ(cudaMallocHost(&pinned, sizeof(int)), cudaSuccess);
  ASSERT_EQ(begin(), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(data.data(), pinned, sizeof(int),
                            cudaMemcpyHostToDevice, stream),
            cudaSuccess);
  ASSERT_EQ(add(stream, 1), cudaSuccess);
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  for (int value : {5, 7}) {
    *pinned = value;
    ASSERT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(data.read()[0], value + 1);
  }
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

} // namespace
