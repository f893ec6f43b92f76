// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The contract of allocator.h, from both sides: all memory of the GPU comes
// from the allocator, is used only between its calls, and goes back to it; and
// an allocator that does not keep its promises is found out. Linked with the
// backend, as cuda_backend_test.cpp is.

#include "backend/backend_test_util.h"
#include "cuda_backend_test_util.h"

#include <cuda_runtime_api.h>

#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>

using namespace ddphook;
using namespace ddphook::test;

namespace {

/// cudaMalloc() and cudaFree(), with a book of what is out. Memory is poisoned
/// before it is given and when it comes back, on the stream that it belongs to.
class Allocator {
public:
  Allocator() {
    table.struct_size = sizeof(table);
    table.user = this;
    table.alloc = [](void *self, size_t bytes, int32_t device, void *stream) {
      return static_cast<Allocator *>(self)->allocate(
          bytes, device, static_cast<cudaStream_t>(stream));
    };
    table.free = [](void *self, void *memory, size_t bytes, int32_t device,
                    void *stream) {
      static_cast<Allocator *>(self)->release(
          memory, bytes, device, static_cast<cudaStream_t>(stream));
    };
  }
  Allocator(const Allocator &) = delete;
  Allocator &operator=(const Allocator &) = delete;

  const ddphook_allocator_t *get() const { return &table; }
  size_t countOut() {
    std::lock_guard<std::mutex> lock(mutex);
    return out.size();
  }
  size_t bytesOut() {
    std::lock_guard<std::mutex> lock(mutex);
    size_t sum = 0;
    for (const auto &[memory, block] : out)
      sum += block.bytes;
    return sum;
  }
  /// Both functions together.
  int64_t calls() const { return allocations + frees; }
  /// One device's calls all have the same stream.
  size_t countStreams() const { return streams.size(); }
  std::set<std::thread::id> callers() const { return threads; }

  /// The number of the allocation, from 1, that gives nothing; 0: none.
  int64_t failAt = 0;
  /// Takes the place of cudaMalloc().
  std::function<void *(size_t)> give;
  /// Asked before memory is taken back.
  std::function<void()> onFree;

private:
  struct Block {
    size_t bytes;
    int32_t device;
    cudaStream_t stream;
  };

  void note(int32_t device, cudaStream_t stream) {
    int current = -1;
    EXPECT_EQ(cudaGetDevice(&current), cudaSuccess);
    EXPECT_EQ(current, device);
    std::lock_guard<std::mutex> lock(mutex);
    threads.insert(std::this_thread::get_id());
    streams.insert({device, stream});
  }

  void *allocate(size_t bytes, int32_t device, cudaStream_t stream) {
    EXPECT_GT(bytes, 0u);
    note(device, stream);
    if (++allocations == failAt)
      return nullptr;
    void *memory = nullptr;
    if (give)
      memory = give(bytes);
    else
      EXPECT_EQ(cudaMalloc(&memory, bytes), cudaSuccess);
    if (!give) {
      EXPECT_EQ(cudaMemsetAsync(memory, 0x7f, bytes, stream), cudaSuccess);
    }
    std::lock_guard<std::mutex> lock(mutex);
    out[memory] = {bytes, device, stream};
    return memory;
  }

  void release(void *memory, size_t bytes, int32_t device,
               cudaStream_t stream) {
    note(device, stream);
    ++frees;
    if (onFree)
      onFree();
    {
      std::lock_guard<std::mutex> lock(mutex);
      auto found = out.find(memory);
      ASSERT_NE(found, out.end()) << "freed what is not out";
      EXPECT_EQ(found->second.bytes, bytes);
      EXPECT_EQ(found->second.device, device);
      EXPECT_EQ(found->second.stream, stream);
      out.erase(found);
    }
    if (give)
      return;
    EXPECT_EQ(cudaMemsetAsync(memory, 0x7f, bytes, stream), cudaSuccess);
    EXPECT_EQ(cudaFree(memory), cudaSuccess);
  }

  ddphook_allocator_t table = {};
  std::mutex mutex;
  std::map<void *, Block> out;
  std::set<std::thread::id> threads;
  std::set<std::pair<int32_t, cudaStream_t>> streams;
  std::atomic<int64_t> allocations{0}, frees{0};
};

class CudaAllocator : public LinkedBackendTest {
public:
  using BackendTest::open;

protected:
  GroupOptions lentBy(const Allocator &allocator) const {
    GroupOptions options;
    options.maxWireBytes = 1 << 16;
    options.maxEncodedBytes = 1 << 12;
    options.allocator = allocator.get();
    return options;
  }
  void scale(Rank &rank, DeviceArray &array) {
    EXPECT_EQ(rank.show(backend->scale(rank.device, 3, array.get(), array.get(),
                                       kCount, DDPHOOK_F32, &rank.error)),
              "OK");
  }
  /// Opens a device that is not to open, and tells why.
  std::string refusal(Allocator &allocator, const char *text = "") {
    Rank rank;
    GroupOptions options = lentBy(allocator);
    options.options = text;
    const std::string answer = open(rank, options);
    if (rank.device)
      backend->device_destroy(rank.device);
    return answer;
  }

  static constexpr int64_t kCount = 1000;
};
INSTANTIATE_TEST_SUITE_P(, CudaAllocator,
                         testing::Values(DDPHOOK_TEST_CUDA_BACKEND),
                         [](const auto &info) { return info.param; });

/// A matrix of 50 x 60 and of rank 40, whose products are cuBLAS's.
struct WideList : SmallList {
  WideList() {
    matrix = {0, 0, 0, 50, 60, 40};
    list.end = 3000;
  }
};

/// Every kind of memory that a device holds.
void useAll(const ddphook_backend_t &backend, Rank &rank) {
  const WideList wide;
  DeviceArray m(rank, filled(3000, 1)), p(rank, filled(2000, -1));
  DeviceArray q(rank, filled(2400, 2));
  DeviceArray wideAligned(rank, 64, /*alignment=*/4096);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(wideAligned.get()) % 4096, 0u);
  EXPECT_EQ(wideAligned.read(), std::vector<char>(64, 0));
  ddphook_matrices_t *matrices = nullptr;
  ASSERT_EQ(rank.show(backend.matrices_create(
                rank.device, &wide.list, DDPHOOK_F32, &matrices, &rank.error)),
            "OK");
  EXPECT_EQ(rank.show(backend.matmul(rank.device, matrices, DDPHOOK_MATMUL_P,
                                     m.get(), p.get(), q.get(), &rank.error)),
            "OK");
  EXPECT_EQ(p.read(), filled(2000, 120));
  if (rank.communicator) {
    const ddphook_collective_t sum = plainSum(3000, DDPHOOK_F32);
    EXPECT_EQ(rank.show(backend.collective(rank.device, rank.communicator, &sum,
                                           m.get(), m.get(), /*ticket=*/nullptr,
                                           &rank.error)),
              "OK");
    EXPECT_EQ(rank.show(backend.synchronize(rank.device, &rank.error)), "OK");
  }
  backend.matrices_destroy(rank.device, matrices);
}

} // namespace

TEST_P(CudaAllocator, ServesAllMemoryAndGetsItBack) {
  for (int ranks : {1, 2}) {
    Allocator allocator;
    std::mutex mutex;
    std::set<std::thread::id> threads;
    bool hasRun = runGroup(
        ranks,
        [&](Rank &rank) {
          {
            std::lock_guard<std::mutex> lock(mutex);
            threads.insert(std::this_thread::get_id());
          }
          useAll(*backend, rank);
          if (isReal() || ranks > 1)
            return;
          // Nothing else of the device is in use.
          size_t free = 0, total = 0;
          ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
          ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
          EXPECT_EQ(total - free, allocator.bytesOut());
          EXPECT_GT(allocator.bytesOut(), size_t(1) << 16);
        },
        lentBy(allocator));
    EXPECT_EQ(allocator.countOut(), 0u);
    EXPECT_EQ(allocator.countStreams(), static_cast<size_t>(ranks));
    if (!hasRun)
      GTEST_SKIP() << "no " << ranks << " GPUs; passed with one";
    EXPECT_EQ(allocator.callers(), threads) << "called on another thread";
  }
}

TEST_P(CudaAllocator, GetsBackWhatTheCallerNeverFreed) {
  Allocator allocator;
  Rank rank;
  ASSERT_EQ(open(rank, lentBy(allocator)), "OK");
  for (uint64_t alignment : {256, 4096}) {
    void *memory = nullptr;
    EXPECT_EQ(rank.show(backend->memory_alloc(rank.device, 64, alignment,
                                              &memory, &rank.error)),
              "OK");
  }
  backend->device_destroy(rank.device);
  EXPECT_EQ(allocator.countOut(), 0u);
}

TEST_P(CudaAllocator, MayFailAtAnyCall) {
  const std::string begin =
      "RESOURCE_EXHAUSTED: expected the caller's allocator to return ";
  const std::string end = " bytes of memory of GPU 0, but it returned null";
  auto isExhausted = [&](const std::string &text) {
    return text.find(begin) == 0 && text.size() > end.size() &&
           text.compare(text.size() - end.size(), end.size(), end) == 0;
  };
  int64_t failures = 0;
  bool hasSucceeded = false;
  for (int64_t number = 1; !hasSucceeded && number < 100; ++number) {
    Allocator allocator;
    allocator.failAt = number;
    std::string answer;
    Rank rank;
    auto tell = [&](ddphook_status_t status) {
      answer = rank.show(status);
      return status == DDPHOOK_OK;
    };
    answer = open(rank, lentBy(allocator));
    if (answer == "OK") {
      const WideList wide;
      ddphook_matrices_t *matrices = nullptr;
      void *memory = nullptr;
      // What works goes on to work after a failure.
      const bool hasAll =
          tell(backend->memory_alloc(rank.device, 64, 4096, &memory,
                                     &rank.error)) &&
          tell(backend->matrices_create(rank.device, &wide.list, DDPHOOK_F32,
                                        &matrices, &rank.error));
      hasSucceeded = hasAll;
      if (memory)
        backend->memory_free(rank.device, memory, 64);
      if (matrices)
        backend->matrices_destroy(rank.device, matrices);
      if (!hasAll)
        useAll(*backend, rank);
    }
    if (!hasSucceeded) {
      ++failures;
      EXPECT_TRUE(isExhausted(answer)) << answer;
    }
    if (rank.device)
      backend->device_destroy(rank.device);
    EXPECT_EQ(allocator.countOut(), 0u) << "at allocation " << number;
  }
  EXPECT_TRUE(hasSucceeded);
  // Scratch memory of the device, an array, a list and its workspace.
  EXPECT_GE(failures, 6);
}

TEST_P(CudaAllocator, AGroupThatGetsNoStagingFailsOnEveryRank) {
  Allocator allocator;
  // The device of one rank has come up; then staging buffers are asked for.
  Allocator probe;
  Rank rank;
  ASSERT_EQ(open(rank, lentBy(probe)), "OK");
  backend->device_destroy(rank.device);
  allocator.failAt = probe.calls() / 2 + 1;
  GroupOptions options = lentBy(allocator);
  std::string refusal;
  options.onRefusal = [&](int, const std::string &text) { refusal = text; };
  runGroup(1, [](Rank &) { FAIL() << "joined without memory"; }, options);
  EXPECT_EQ(refusal.find("RESOURCE_EXHAUSTED: expected the caller's allocator"),
            0u)
      << refusal;
  EXPECT_EQ(allocator.countOut(), 0u);
}

TEST_P(CudaAllocator, WhatItGivesIsLookedAt) {
  int devices = 0;
  ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
  auto expectRefused = [&](const std::function<void *(size_t)> &give,
                           const std::string &expected) {
    Allocator allocator;
    allocator.give = give;
    const std::string answer = refusal(allocator);
    EXPECT_EQ(
        answer.find(
            "INVALID_ARGUMENT: expected the caller's allocator to return "),
        0u)
        << answer;
    EXPECT_NE(answer.find(expected), std::string::npos) << answer;
    EXPECT_EQ(allocator.countOut(), 0u) << "not given back: " << expected;
  };
  const size_t bytes = size_t(1) << 20;
  void *memory = nullptr, *pinned = nullptr;
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&memory, bytes), cudaSuccess);
  ASSERT_EQ(cudaMallocHost(&pinned, bytes), cudaSuccess);
  std::vector<char> pageable(bytes);
  expectRefused([&](size_t) { return static_cast<char *>(memory) + 64; },
                "an address that 256 divides, but got ");
  expectRefused([&](size_t) { return pinned; },
                "of GPU 0, but got host memory");
  expectRefused(
      [&](size_t) {
        const auto begin = reinterpret_cast<uintptr_t>(pageable.data());
        return reinterpret_cast<void *>((begin + 255) / 256 * 256);
      },
      "of GPU 0, but got host memory");
  if (!isReal())
    // Behind it there is other memory, on a real GPU.
    expectRefused(
        [&](size_t asked) {
          return static_cast<char *>(memory) + bytes - (asked - 1) / 256 * 256;
        },
        "of GPU 0, but got host memory");
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  if (devices > 1) {
    void *other = nullptr;
    ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
    ASSERT_EQ(cudaMalloc(&other, bytes), cudaSuccess);
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    expectRefused([&](size_t) { return other; },
                  "of GPU 0, but got memory of GPU 1");
    EXPECT_EQ(cudaFree(other), cudaSuccess);
  }
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

TEST_P(CudaAllocator, WhatItGivesTwiceIsFreedOnce) {
  void *memory = nullptr;
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&memory, size_t(1) << 20), cudaSuccess);
  Allocator allocator;
  // The second block begins in the first one.
  int64_t given = 0;
  allocator.give = [&](size_t) {
    return static_cast<char *>(memory) + 256 * given++;
  };
  Rank rank;
  GroupOptions options = lentBy(allocator);
  const std::string answer = open(rank, options);
  EXPECT_NE(answer.find("unused memory, but it returned"), std::string::npos)
      << answer;
  EXPECT_EQ(answer.find("INVALID_ARGUMENT: "), 0u) << answer;
  EXPECT_EQ(rank.device, nullptr);
  EXPECT_EQ(allocator.countOut(), 1u) << "expected the last block alone";
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

TEST_P(CudaAllocator, RegisteredMemoryIsRefused) {
  Allocator allocator;
  EXPECT_EQ(
      refusal(allocator, "register=1"),
      "INVALID_ARGUMENT: option register: register=1 takes memory from NCCL "
      "and cannot be combined with options.allocator; omit one of them");
  EXPECT_EQ(allocator.calls(), 0);
  EXPECT_EQ(refusal(allocator, "register=0"), "OK");
}

TEST_P(CudaAllocator, IsNotCalledDuringACapture) {
  Allocator allocator;
  runAlone(
      [&](Rank &rank) {
        Stream stream;
        set(rank, stream.get());
        DeviceArray array(rank, filled(kCount, 1));
        const SmallList small;
        ddphook_matrices_t *matrices = nullptr;
        void *memory = nullptr, *other = nullptr;
        ASSERT_EQ(rank.show(backend->memory_alloc(rank.device, 64, 256, &memory,
                                                  &rank.error)),
                  "OK");
        ASSERT_EQ(rank.show(backend->matrices_create(rank.device, &small.list,
                                                     DDPHOOK_F32, &matrices,
                                                     &rank.error)),
                  "OK");
        const int64_t before = allocator.calls();
        const size_t out = allocator.countOut();
        Graph graph(stream.get());
        scale(rank, array);
        EXPECT_EQ(rank.show(backend->memory_alloc(rank.device, 64, 256, &other,
                                                  &rank.error)),
                  "FAILED_PRECONDITION: allocating memory cannot be captured "
                  "in a graph");
        backend->memory_free(rank.device, memory, 64);
        backend->matrices_destroy(rank.device, matrices);
        EXPECT_EQ(allocator.calls(), before);
        graph.end();
        // It comes back with the next call that allocates or frees.
        DeviceArray next(rank, 64);
        EXPECT_EQ(allocator.countOut(), out - 2 + 1);
        graph.launch();
        EXPECT_EQ(array.read(), filled(kCount, 3));
        set(rank, nullptr);
      },
      lentBy(allocator));
  EXPECT_EQ(allocator.countOut(), 0u);
}

TEST_P(CudaAllocator, MayAllocateWhileOthersCapture) {
  Allocator allocator;
  Stream stream;
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  void *pinned = nullptr;
  ASSERT_EQ(cudaMallocHost(&pinned, 64), cudaSuccess);
  {
    Graph graph(stream.get());
    EXPECT_EQ(cudaMemsetAsync(pinned, 1, 64, stream.get()), cudaSuccess);
    runAlone([&](Rank &rank) { useAll(*backend, rank); }, lentBy(allocator));
    EXPECT_EQ(allocator.countOut(), 0u);
    graph.end();
  }
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST_P(CudaAllocator, FreesWhenWorkHasEnded) {
  Allocator allocator;
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  Stream stream;
  std::atomic<bool> isBusy{false};
  allocator.onFree = [&] { EXPECT_FALSE(isBusy) << "freed beside work"; };
  /// Work of the caller's on the stream, behind which the backend's is.
  auto hold = [&] {
    isBusy = true;
    EXPECT_EQ(cudaLaunchHostFunc(
                  stream.get(),
                  [](void *flag) {
                    std::this_thread::sleep_for(std::chrono::milliseconds(30));
                    *static_cast<std::atomic<bool> *>(flag) = false;
                  },
                  &isBusy),
              cudaSuccess);
  };
  runAlone(
      [&](Rank &rank) {
        set(rank, stream.get());
        const SmallList small;
        ddphook_matrices_t *matrices = nullptr;
        ASSERT_EQ(rank.show(backend->matrices_create(rank.device, &small.list,
                                                     DDPHOOK_F32, &matrices,
                                                     &rank.error)),
                  "OK");
        auto array = std::make_unique<DeviceArray>(rank, filled(kCount, 1));
        hold();
        scale(rank, *array);
        array.reset();
        hold();
        backend->matrices_destroy(rank.device, matrices);
        // The device's own memory, when it is closed.
        hold();
      },
      lentBy(allocator));
  EXPECT_EQ(allocator.countOut(), 0u);
}

/// What is closed while a graph is captured leaves its memory where it is.
TEST_P(CudaAllocator, ClosingDuringACaptureFreesNothing) {
  Allocator allocator;
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  Stream stream;
  Rank rank;
  ASSERT_EQ(open(rank, lentBy(allocator)), "OK");
  set(rank, stream.get());
  auto array = std::make_unique<DeviceArray>(rank, filled(kCount, 1));
  const size_t out = allocator.countOut();
  const int64_t calls = allocator.calls();
  Graph graph(stream.get());
  scale(rank, *array);
  array.reset();
  backend->device_destroy(rank.device);
  graph.end();
  EXPECT_EQ(allocator.countOut(), out);
  EXPECT_EQ(allocator.calls(), calls);
}

/// The caller's own work does not end, and the step fails. Nothing that the GPU
/// may still use goes back.
TEST_P(CudaAllocator, KeepsWhatAFailedStepMayUse) {
  Allocator allocator;
  GroupOptions options = lentBy(allocator);
  options.timeout = 0.5;
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  Stream stream;
  Gate gate(stream.get());
  int64_t frees = 0;
  allocator.onFree = [&] { ++frees; };
  size_t out = 0;
  runAlone(
      [&](Rank &rank) {
        set(rank, stream.get());
        DeviceArray array(rank, 64);
        out = allocator.countOut();
        EXPECT_EQ(backend->synchronize(rank.device, &rank.error),
                  DDPHOOK_DEADLINE_EXCEEDED);
      },
      options);
  EXPECT_EQ(frees, 0);
  EXPECT_EQ(allocator.countOut(), out);
  gate.open();
  EXPECT_EQ(cudaStreamSynchronize(stream.get()), cudaSuccess);
}
