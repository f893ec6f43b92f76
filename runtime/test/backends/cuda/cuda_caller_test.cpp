// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The backend runs on threads that use CUDA themselves: their current device,
// their last error and their captures are not its own to change, and it works
// behind what they put into their streams. Linked with the backend, as
// cuda_backend_test.cpp is.

#include "backend/backend_test_util.h"
#include "cuda_backend_test_util.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

using namespace ddphook;
using namespace ddphook::test;

namespace {

/// Come first: they need a process that has not used CUDA yet.
class CudaContexts : public LinkedBackendTest {
protected:
  void SetUp() override {
    if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 1)
      return load().ignore();
    (void)cudaGetLastError();
    BackendTest::SetUp();
    if (!IsSkipped())
      GTEST_SKIP() << "there is one GPU";
  }

  /// "0100" where GPU 1 of four has a context in this process.
  std::string contexts() const {
    void *function = nullptr;
    EXPECT_EQ(cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState",
                                               &function, 7000,
                                               cudaEnableDefault, nullptr),
              cudaSuccess);
    auto getState =
        reinterpret_cast<decltype(&cuDevicePrimaryCtxGetState)>(function);
    std::string text;
    for (int device = 0; device < devices; ++device) {
      unsigned flags = 0;
      int isActive = 0;
      EXPECT_EQ(getState(device, &flags, &isActive), CUDA_SUCCESS);
      text += isActive ? '1' : '0';
    }
    return text;
  }

  int devices = 0;
};
INSTANTIATE_TEST_SUITE_P(, CudaContexts,
                         testing::Values(DDPHOOK_TEST_CUDA_BACKEND),
                         [](const auto &info) { return info.param; });

class CudaCaller : public LinkedBackendTest {
protected:
  void scale(Rank &rank, DeviceArray &array, double factor) {
    EXPECT_EQ(
        rank.show(backend->scale(rank.device, factor, array.get(), array.get(),
                                 kCount, DDPHOOK_F32, &rank.error)),
        "OK");
  }
  void synchronize(Rank &rank) {
    EXPECT_EQ(rank.show(backend->synchronize(rank.device, &rank.error)), "OK");
  }

  static constexpr int64_t kCount = 1000;
};
INSTANTIATE_TEST_SUITE_P(, CudaCaller,
                         testing::Values(DDPHOOK_TEST_CUDA_BACKEND),
                         [](const auto &info) { return info.param; });

} // namespace

TEST_P(CudaContexts, OnlyOfTheRanksGpu) {
  const std::string before(static_cast<size_t>(devices), '0');
  std::string expected = before;
  expected[1] = '1';
  ASSERT_EQ(contexts(), before) << "expected a process without contexts";
  Rank rank;
  rank.index = 1;
  ASSERT_EQ(open(rank, {}), "OK");
  EXPECT_EQ(contexts(), expected) << "opening the device";
  auto use = [&] {
    DeviceArray array(rank, std::vector<char>(64, 1));
    EXPECT_EQ(rank.show(backend->scale(rank.device, 2, array.get(), array.get(),
                                       16, DDPHOOK_F32, &rank.error)),
              "OK");
    EXPECT_EQ(rank.show(backend->synchronize(rank.device, &rank.error)), "OK");
  };
  use();
  // A thread that has never used CUDA.
  std::thread(use).join();
  EXPECT_EQ(contexts(), expected) << "using the device";
  Rank refused;
  refused.index = 1;
  GroupOptions options;
  options.transport = "pigeon";
  EXPECT_NE(open(refused, options), "OK");
  EXPECT_EQ(contexts(), expected) << "refusing a device";
  backend->device_destroy(rank.device);
  EXPECT_EQ(contexts(), expected) << "closing the device";
}

TEST_P(CudaContexts, TheCallersDeviceComesBack) {
  Rank rank;
  rank.index = 1;
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  auto current = [] {
    int number = -1;
    EXPECT_EQ(cudaGetDevice(&number), cudaSuccess);
    return number;
  };
  ASSERT_EQ(open(rank, {}), "OK");
  EXPECT_EQ(current(), 0);
  {
    DeviceArray array(rank, 64);
    EXPECT_EQ(current(), 0);
  }
  backend->device_destroy(rank.device);
  EXPECT_EQ(current(), 0);
}

/// Who feeds the caller's stream for ever keeps nobody waiting.
TEST_P(CudaCaller, WaitingIsForWhatIsThere) {
  runAlone([&](Rank &rank) {
    Stream stream;
    set(rank, stream.get());
    DeviceArray array(rank, filled(kCount, 1));
    std::atomic<int> queued{0};
    std::atomic<bool> isOver{false};
    std::thread feeder([&] {
      ASSERT_EQ(cudaSetDevice(rank.index), cudaSuccess);
      while (!isOver) {
        for (; queued < 4; ++queued)
          ASSERT_EQ(cudaLaunchHostFunc(
                        stream.get(),
                        [](void *count) {
                          std::this_thread::sleep_for(
                              std::chrono::milliseconds(5));
                          --*static_cast<std::atomic<int> *>(count);
                        },
                        &queued),
                    cudaSuccess);
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    });
    while (queued < 4)
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    scale(rank, array, 3);
    synchronize(rank);
    isOver = true;
    feeder.join();
    ASSERT_EQ(cudaStreamSynchronize(stream.get()), cudaSuccess);
    EXPECT_EQ(array.read(), filled(kCount, 3));
    set(rank, nullptr);
  });
}

/// CUDA frees memory when the whole device is idle, which others may keep busy.
TEST_P(CudaCaller, FreeingDoesNotWaitForOthers) {
  std::atomic<bool> isThrough{false}, wasForced{false};
  runAlone([&](Rank &rank) {
    Stream others;
    Gate gate(others.get());
    std::thread patience([&] {
      for (int i = 0; i < 3000 && !isThrough; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      wasForced = !isThrough;
      gate.open();
    });
    for (int i = 0; i < 5; ++i) {
      DeviceArray array(rank, filled(kCount, 1));
      scale(rank, array, 3);
      EXPECT_EQ(array.read(), filled(kCount, 3));
    }
    isThrough = true;
    patience.join();
    EXPECT_EQ(cudaStreamSynchronize(others.get()), cudaSuccess);
  });
  EXPECT_FALSE(wasForced) << "something waited for work of others";
}

TEST_P(CudaCaller, WaitingLeavesNoError) {
  runAlone([&](Rank &rank) {
    Stream stream;
    set(rank, stream.get());
    DeviceArray array(rank, filled(kCount, 1));
    Gate gate(stream.get());
    scale(rank, array, 3);
    gate.openSoon();
    synchronize(rank);
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
    set(rank, nullptr);
  });
}

TEST_P(CudaCaller, AnErrorOfTheCallersStays) {
  for (bool isLegacy : {false, true}) {
    runAlone([&](Rank &rank) {
      Stream own;
      const cudaStream_t stream = isLegacy ? cudaStreamLegacy : own.get();
      set(rank, stream);
      // That of a launch, say, which the caller has not looked at yet.
      ASSERT_EQ(cudaSetDevice(9999), cudaErrorInvalidDevice);
      {
        DeviceArray array(rank, filled(kCount, 1));
        Gate gate(stream);
        scale(rank, array, 3);
        gate.openSoon();
        synchronize(rank);
        EXPECT_EQ(array.read(), filled(kCount, 3));
      }
      set(rank, nullptr);
      EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
      EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    });
  }
}

TEST_P(CudaCaller, MemoryIsZeroWhenItIsGiven) {
  runAlone([&](Rank &rank) {
    Stream held, other;
    set(rank, held.get());
    Gate gate(held.get());
    {
      DeviceArray array(rank, kCount);
      // A stream of which the backend does not know.
      ASSERT_EQ(cudaMemsetAsync(array.get(), 7, kCount, other.get()),
                cudaSuccess);
      ASSERT_EQ(cudaStreamSynchronize(other.get()), cudaSuccess);
      gate.open();
      EXPECT_EQ(array.read(), std::vector<char>(kCount, 7));
    }
    set(rank, nullptr);
  });
}

TEST_P(CudaCaller, MatricesAreThereWhenTheyAreMade) {
  runAlone([&](Rank &rank) {
    const SmallList small;
    DeviceArray p(rank, filled(2, 2)), q(rank, filled(3, 5));
    DeviceArray m(rank, filled(6, -1));
    ddphook_matrices_t *matrices = nullptr;
    ASSERT_EQ(rank.show(backend->matrices_create(rank.device, &small.list,
                                                 DDPHOOK_F32, &matrices,
                                                 &rank.error)),
              "OK");
    EXPECT_EQ(
        rank.show(backend->matmul(rank.device, matrices, DDPHOOK_MATMUL_M,
                                  m.get(), p.get(), q.get(), &rank.error)),
        "OK");
    EXPECT_EQ(m.read(), filled(6, 10));
    backend->matrices_destroy(rank.device, matrices);
  });
}

TEST_P(CudaCaller, CapturesElsewhereGoOn) {
  runAlone([&](Rank &rank) {
    Stream stream;
    void *pinned = nullptr;
    ASSERT_EQ(cudaMallocHost(&pinned, kCount), cudaSuccess);
    auto use = [&] {
      const SmallList small;
      DeviceArray array(rank, filled(kCount, 1));
      ddphook_matrices_t *matrices = nullptr;
      EXPECT_EQ(rank.show(backend->matrices_create(rank.device, &small.list,
                                                   DDPHOOK_F32, &matrices,
                                                   &rank.error)),
                "OK");
      if (matrices)
        backend->matrices_destroy(rank.device, matrices);
      scale(rank, array, 2);
      EXPECT_EQ(array.read(), filled(kCount, 2));
      Rank another;
      EXPECT_EQ(open(another, {}), "OK");
      if (another.device)
        backend->device_destroy(another.device);
    };
    auto capture = [&](const std::function<void()> &body) {
      cudaGraph_t graph = nullptr;
      ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
      ASSERT_EQ(
          cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal),
          cudaSuccess);
      EXPECT_EQ(cudaMemsetAsync(pinned, 1, kCount, stream.get()), cudaSuccess);
      body();
      EXPECT_EQ(cudaStreamEndCapture(stream.get(), &graph), cudaSuccess);
      if (graph) {
        EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
      }
    };
    capture(use);
    capture([&] { std::thread(use).join(); });
    EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  });
}

TEST_P(CudaCaller, NullIsTheBackendsOwnStream) {
  runAlone([&](Rank &rank) {
    set(rank, nullptr);
    DeviceArray array(rank, filled(kCount, 1));
    scale(rank, array, 3);
    synchronize(rank);
    // What CUDA means by a null stream does not hold it up.
    Gate gate(nullptr);
    scale(rank, array, 3);
    EXPECT_EQ(array.read(), filled(kCount, 9));
    gate.open();
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  });
}

TEST_P(CudaCaller, DefaultStreamsAreGivenByName) {
  runAlone([&](Rank &rank) {
    const size_t bytes = kCount * sizeof(float);
    void *values = nullptr, *result = nullptr;
    ASSERT_EQ(cudaMallocHost(&values, bytes), cudaSuccess);
    ASSERT_EQ(cudaMallocHost(&result, bytes), cudaSuccess);
    std::memcpy(values, filled(kCount, 4).data(), bytes);
    for (cudaStream_t stream : {cudaStreamLegacy, cudaStreamPerThread}) {
      DeviceArray array(rank, filled(kCount, 1));
      std::memset(result, 0xff, bytes);
      set(rank, stream);
      Gate gate(stream);
      // The caller's work before and after the backend's.
      EXPECT_EQ(cudaMemcpyAsync(array.get(), values, bytes,
                                cudaMemcpyHostToDevice, stream),
                cudaSuccess);
      scale(rank, array, 3);
      EXPECT_EQ(cudaMemcpyAsync(result, array.get(), bytes,
                                cudaMemcpyDeviceToHost, stream),
                cudaSuccess);
      gate.open();
      EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
      EXPECT_EQ(std::memcmp(result, filled(kCount, 12).data(), bytes), 0);
      set(rank, nullptr);
    }
    EXPECT_EQ(cudaFreeHost(values), cudaSuccess);
    EXPECT_EQ(cudaFreeHost(result), cudaSuccess);
  });
}
