// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What tests of the CUDA backend give it: streams, graphs, data. And the
// backend with which such a test is linked.

#pragma once

#include "backend/backend_test_util.h"
#include "ddphook/runtime/backend.h"

#include <gtest/gtest.h>

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

extern "C" const ddphook_backend_t *ddphook_backend_get(void);

namespace ddphook::test {

/// Runs on the backend that the test is linked with: both have one CUDA
/// runtime.
class LinkedBackendTest : public BackendTest {
protected:
  Status load() override {
    backend = ddphook_backend_get();
    return Status::ok();
  }
  void set(Rank &rank, cudaStream_t stream) {
    ASSERT_EQ(rank.show(backend->stream_set(rank.device, stream, &rank.error)),
              "OK");
  }
};

/// A stream of the caller's, which no other one waits for.
class Stream {
public:
  Stream() {
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
              cudaSuccess);
  }
  ~Stream() { EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess); }
  Stream(const Stream &) = delete;
  Stream &operator=(const Stream &) = delete;
  cudaStream_t get() const { return stream; }

private:
  cudaStream_t stream = nullptr;
};

/// Holds up a stream until it is opened; outlives what is in the stream.
class Gate {
public:
  explicit Gate(cudaStream_t stream) {
    EXPECT_EQ(cudaLaunchHostFunc(stream, wait, this), cudaSuccess);
  }
  void open() { isOpen = true; }
  void openSoon() {
    opener = std::thread([this] {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      open();
    });
  }
  ~Gate() {
    if (opener.joinable())
      opener.join();
  }

private:
  static void wait(void *self) {
    while (!static_cast<Gate *>(self)->isOpen)
      std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  std::atomic<bool> isOpen{false};
  std::thread opener;
};

/// A step that was captured from a stream.
class Graph {
public:
  explicit Graph(cudaStream_t stream,
                 cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal)
      : stream(stream) {
    EXPECT_EQ(cudaStreamBeginCapture(stream, mode), cudaSuccess);
  }
  void end() {
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }
  void launch() { launchOn(stream); }
  void launchOn(cudaStream_t other) {
    EXPECT_EQ(cudaGraphLaunch(executable, other), cudaSuccess);
  }
  void destroy() {
    if (executable) {
      EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
    }
    executable = nullptr;
  }
  ~Graph() { destroy(); }
  Graph(const Graph &) = delete;
  Graph &operator=(const Graph &) = delete;

private:
  cudaStream_t stream;
  cudaGraphExec_t executable = nullptr;
};

/// One matrix of 2 x 3, of rank 1.
struct SmallList {
  SmallList() {
    list.struct_size = sizeof(list);
    list.end = 6;
    list.matrices = &matrix;
    list.matrix_count = 1;
  }
  ddphook_matrix_t matrix = {0, 0, 0, 2, 3, 1};
  ddphook_matrix_list_t list = {};
};

inline std::vector<char> toBytes(const std::vector<float> &values) {
  std::vector<char> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

inline std::vector<char> filled(int64_t count, float value) {
  return toBytes(std::vector<float>(static_cast<size_t>(count), value));
}

} // namespace ddphook::test
