// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks are forked processes, each with a GPU of its own; an empty text from
// one says that all went well. Nothing of the emulated device may be used in
// the test's own process: threads do not survive a fork.

#pragma once

#include "cuda_runtime.h"
#include "nccl.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace emulated_cuda_test {

/// Returns from a function that returns a text when a call fails.
#define REQUIRE_NCCL(call)                                                     \
  do {                                                                         \
    ncclResult_t ncclResult = (call);                                          \
    if (ncclResult != ncclSuccess)                                             \
      return std::string(#call) + ": " + ncclGetErrorString(ncclResult) +      \
             ": " + ncclGetLastError(nullptr);                                 \
  } while (false)
#define REQUIRE_CUDA(call)                                                     \
  do {                                                                         \
    cudaError_t cudaError = (call);                                            \
    if (cudaError != cudaSuccess)                                              \
      return std::string(#call) + ": " + cudaGetErrorName(cudaError);          \
  } while (false)
/// The same when two values differ.
#define EXPECT_TEXT(actual, expected)                                          \
  do {                                                                         \
    auto actualValue = (actual);                                               \
    if (actualValue != (expected)) {                                           \
      std::ostringstream text;                                                 \
      text << #actual << ": expected " << (expected) << ", but got "           \
           << actualValue;                                                     \
      return text.str();                                                       \
    }                                                                          \
  } while (false)

/// Brings the unique id from rank 0 to the others, and has ranks wait for each
/// other: memory that forks share.
class SharedId {
public:
  SharedId();
  ~SharedId();

  void put(const ncclUniqueId &id);
  ncclUniqueId get() const;
  /// Returns when `count` ranks have called it.
  void meet(int count);

private:
  struct Content {
    std::atomic<bool> isThere;
    std::atomic<int> met;
    ncclUniqueId id;
  };
  Content *content;
};

/// Runs `size` ranks, all of which have to end well; those of `signals` by that
/// signal instead.
void runAll(int size, SharedId &id,
            const std::function<std::string(int rank)> &function,
            const std::vector<int> &signals = {});

/// A rank within runAll(), with a stream.
class Rank {
public:
  Rank(int rank, int size, bool isBlocking);
  ~Rank();

  /// Begins to join the communicator.
  ncclResult_t begin();
  /// Joins it, waiting.
  ncclResult_t join() { return finish(begin()); }
  /// The final result of a call, waiting for it where it is in progress.
  ncclResult_t finish(ncclResult_t result);
  /// Finalizes and destroys the communicator; a text says what went wrong.
  std::string leave();

  ncclComm_t communicator() const { return comm; }
  ncclComm_t release() { return std::exchange(comm, nullptr); }
  cudaStream_t stream() const { return ownStream; }

private:
  int rank;
  int size;
  bool isBlocking;
  ncclComm_t comm = nullptr;
  cudaStream_t ownStream = nullptr;
};

/// Bytes on the device.
class DeviceBytes {
public:
  explicit DeviceBytes(const std::vector<char> &bytes);
  ~DeviceBytes();
  void *data() const { return memory; }
  std::vector<char> read() const;
  DeviceBytes(const DeviceBytes &) = delete;
  DeviceBytes &operator=(const DeviceBytes &) = delete;

private:
  void *memory = nullptr;
  size_t count;
};

} // namespace emulated_cuda_test
