// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is ordered, and what is not: a gate, an operation that waits until the
// test opens it, shows which others wait for it.

#include "cuda_runtime.h"
#include "device_array.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

using emulated_cuda_test::DeviceArray;

namespace {

void pause() { std::this_thread::sleep_for(std::chrono::milliseconds(30)); }

/// Holds up a stream until it is opened.
class Gate {
public:
  explicit Gate(cudaStream_t stream) {
    EXPECT_EQ(cudaLaunchHostFunc(stream, wait, this), cudaSuccess);
  }
  void open() { isOpen = true; }

private:
  static void wait(void *self) {
    while (!static_cast<Gate *>(self)->isOpen)
      std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  std::atomic<bool> isOpen{false};
};

class Stream {
public:
  explicit Stream(unsigned flags = cudaStreamNonBlocking) {
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, flags), cudaSuccess);
  }
  ~Stream() { EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess); }
  operator cudaStream_t() const { return stream; }

private:
  cudaStream_t stream;
};

class Event {
public:
  explicit Event(unsigned flags = cudaEventDisableTiming) {
    EXPECT_EQ(cudaEventCreateWithFlags(&event, flags), cudaSuccess);
  }
  ~Event() { EXPECT_EQ(cudaEventDestroy(event), cudaSuccess); }
  operator cudaEvent_t() const { return event; }

private:
  cudaEvent_t event;
};

__global__ void append(int *list, int *count, int value) {
  list[atomicAdd(count, 1)] = value;
}

cudaError_t appendOn(cudaStream_t stream, DeviceArray<int> &list, int value) {
  cudaLaunchConfig_t config = {};
  config.stream = stream;
  return cudaLaunchKernelEx(&config, append, list.data() + 1, list.data(),
                            value);
}

TEST(Stream, RunsInOrderAndReturnsAtOnce) {
  Stream stream;
  DeviceArray<int> list(std::vector<int>(6, 0));
  Gate gate(stream);
  for (int i = 1; i <= 5; ++i)
    ASSERT_EQ(appendOn(stream, list, i * 11), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
  gate.open();
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
  EXPECT_EQ(list.read(), (std::vector<int>{5, 11, 22, 33, 44, 55}));
}

TEST(Stream, OthersGoOnMeanwhile) {
  Stream slow, fast;
  Gate gate(slow);
  DeviceArray<int> list(2);
  EXPECT_EQ(cudaMemsetAsync(list.data(), 0, 8, fast), cudaSuccess);
  ASSERT_EQ(appendOn(fast, list, 7), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(fast), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(slow), cudaErrorNotReady);
  gate.open();
}

TEST(Stream, AnEventMakesAnotherOneWait) {
  Stream first, second;
  Event event;
  DeviceArray<int> list(std::vector<int>(3, 0));
  Gate gate(first);
  ASSERT_EQ(appendOn(first, list, 1), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event, first), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(second, event), cudaSuccess);
  ASSERT_EQ(appendOn(second, list, 2), cudaSuccess);
  pause();
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(second), cudaErrorNotReady);
  gate.open();
  EXPECT_EQ(cudaStreamSynchronize(second), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  EXPECT_EQ(list.read(), (std::vector<int>{2, 1, 2}));
}

TEST(Stream, AnEventCountsAsItWasWhenItWasWaitedFor) {
  Stream first, second;
  Event event;
  ASSERT_EQ(cudaEventRecord(event, first), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(second, event), cudaSuccess);
  Gate gate(first);
  ASSERT_EQ(cudaEventRecord(event, first), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(second), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  gate.open();
  EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);
}

TEST(Stream, AnEventThatWasNeverRecordedHoldsUpNothing) {
  Stream stream;
  Event event;
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(stream, event), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
}

TEST(Stream, TheLegacyStreamWaitsForBlockingStreams) {
  Stream blocking(cudaStreamDefault), free;
  Gate freeGate(free);
  Gate gate(blocking);
  DeviceArray<int> list(2);
  ASSERT_EQ(cudaMemsetAsync(list.data(), 0, 8, nullptr), cudaSuccess);
  pause();
  EXPECT_EQ(cudaStreamQuery(nullptr), cudaErrorNotReady);
  gate.open();
  // The other one still runs.
  EXPECT_EQ(cudaStreamSynchronize(cudaStreamLegacy), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(free), cudaErrorNotReady);
  freeGate.open();
}

TEST(Stream, BlockingStreamsWaitForTheLegacyStream) {
  Stream blocking(cudaStreamDefault), free;
  DeviceArray<int> list(2);
  Gate gate(nullptr);
  ASSERT_EQ(cudaMemsetAsync(list.data(), 0, 4, blocking), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(list.data() + 1, 0, 4, free), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(free), cudaSuccess);
  pause();
  EXPECT_EQ(cudaStreamQuery(blocking), cudaErrorNotReady);
  gate.open();
  EXPECT_EQ(cudaStreamSynchronize(blocking), cudaSuccess);
}

TEST(Stream, EveryThreadHasOneOfItsOwn) {
  DeviceArray<int> list(std::vector<int>(3, 0));
  Gate gate(cudaStreamPerThread);
  ASSERT_EQ(appendOn(cudaStreamPerThread, list, 1), cudaSuccess);
  std::thread([&] {
    ASSERT_EQ(appendOn(cudaStreamPerThread, list, 2), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(cudaStreamPerThread), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(cudaStreamPerThread),
              cudaErrorInvalidResourceHandle);
  }).join();
  EXPECT_EQ(cudaStreamQuery(cudaStreamPerThread), cudaErrorNotReady);
  // The legacy stream waits for those of all threads.
  EXPECT_EQ(cudaStreamQuery(nullptr), cudaErrorNotReady);
  gate.open();
  EXPECT_EQ(cudaStreamSynchronize(cudaStreamPerThread), cudaSuccess);
  EXPECT_EQ(list.read(), (std::vector<int>{2, 2, 1}));
}

TEST(Stream, MayBeDestroyedWhileItRuns) {
  cudaStream_t stream;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  DeviceArray<int> list(std::vector<int>(2, 0));
  Event event;
  {
    Gate gate(stream);
    ASSERT_EQ(appendOn(stream, list, 9), cudaSuccess);
    ASSERT_EQ(cudaEventRecord(event, stream), cudaSuccess);
    ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
    gate.open();
    ASSERT_EQ(cudaEventSynchronize(event), cudaSuccess);
  }
  EXPECT_EQ(list.read()[1], 9);
}

TEST(Stream, DeviceSynchronizeWaitsForAll) {
  Stream a, b(cudaStreamDefault);
  DeviceArray<int> list(std::vector<int>(3, 0));
  Gate gate(a);
  ASSERT_EQ(appendOn(a, list, 1), cudaSuccess);
  ASSERT_EQ(appendOn(b, list, 2), cudaSuccess);
  std::thread opener([&] {
    pause();
    gate.open();
  });
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(a), cudaSuccess);
  opener.join();
  EXPECT_EQ(list.read(), (std::vector<int>{2, 2, 1}));
}

TEST(Stream, TellsItsProperties) {
  int least, greatest, priority, device;
  ASSERT_EQ(cudaDeviceGetStreamPriorityRange(&least, &greatest), cudaSuccess);
  EXPECT_LT(greatest, least);
  cudaStream_t stream;
  ASSERT_EQ(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                         greatest - 10),
            cudaSuccess);
  unsigned flags;
  EXPECT_EQ(cudaStreamGetPriority(stream, &priority), cudaSuccess);
  EXPECT_EQ(priority, greatest);
  EXPECT_EQ(cudaStreamGetFlags(stream, &flags), cudaSuccess);
  EXPECT_EQ(flags, unsigned(cudaStreamNonBlocking));
  EXPECT_EQ(cudaStreamGetDevice(stream, &device), cudaSuccess);
  EXPECT_EQ(device, 0);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_EQ(cudaStreamCreateWithFlags(&stream, 2), cudaErrorInvalidValue);
  EXPECT_EQ(cudaStreamDestroy(nullptr), cudaErrorInvalidResourceHandle);
}

TEST(Event, MeasuresTime) {
  Stream stream;
  Event start(cudaEventDefault), end(cudaEventDefault), untimed;
  ASSERT_EQ(cudaEventRecord(start, stream), cudaSuccess);
  Gate gate(stream);
  ASSERT_EQ(cudaEventRecord(end, stream), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(untimed, stream), cudaSuccess);
  float ms = -1;
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, end), cudaErrorNotReady);
  ASSERT_EQ(cudaEventSynchronize(start), cudaSuccess);
  pause();
  gate.open();
  ASSERT_EQ(cudaEventSynchronize(end), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, end), cudaSuccess);
  EXPECT_GE(ms, 30);
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, untimed),
            cudaErrorInvalidResourceHandle);
}

} // namespace
