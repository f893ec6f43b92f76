// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a caller of the CUDA backend does with CUDA itself: streams of its own,
// graphs, addresses. The test is linked with the backend, so that both use one
// CUDA runtime: the emulated one, or a toolkit's on a GPU.

#include "backend/backend_store.h"
#include "backend/backend_test_util.h"
#include "cuda_backend_test_util.h"
#include "group_bootstrap.h"
#include "store/store.h"

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

using namespace ddphook;
using namespace ddphook::test;

namespace {

class CudaBackend : public LinkedBackendTest {
public:
  using BackendTest::runGroup;
};
INSTANTIATE_TEST_SUITE_P(, CudaBackend,
                         testing::Values(DDPHOOK_TEST_CUDA_BACKEND),
                         [](const auto &info) { return info.param; });

constexpr int64_t kCount = 5000;

/// A step with a bit of everything that can be captured: out = the mean of
/// f16(in) over ranks, sum = out's sum started beside a scaling of `in`.
void runStep(Rank &rank, DeviceArray &in, DeviceArray &out, DeviceArray &sum,
             DeviceArray &scaled) {
  const ddphook_backend_t &backend = *rank.backend;
  ddphook_collective_t mean = plainSum(kCount, DDPHOOK_F32);
  mean.wire_dtype = DDPHOOK_F16;
  mean.divide = 1;
  ddphook_collective_t plain = plainSum(kCount, DDPHOOK_F32);
  int64_t ticket = 0;
  EXPECT_EQ(rank.show(backend.collective(rank.device, rank.communicator, &mean,
                                         in.get(), out.get(),
                                         /*ticket=*/nullptr, &rank.error)),
            "OK");
  EXPECT_EQ(
      rank.show(backend.collective(rank.device, rank.communicator, &plain,
                                   out.get(), sum.get(), &ticket, &rank.error)),
      "OK");
  EXPECT_EQ(rank.show(backend.scale(rank.device, 0.5, in.get(), scaled.get(),
                                    kCount, DDPHOOK_F32, &rank.error)),
            "OK");
  EXPECT_EQ(rank.show(backend.wait(rank.device, ticket, &rank.error)), "OK");
  EXPECT_EQ(rank.show(backend.add(rank.device, sum.get(), scaled.get(),
                                  sum.get(), kCount, DDPHOOK_F32, &rank.error)),
            "OK");
}

} // namespace

TEST_P(CudaBackend, HostMemoryIsRefused) {
  runGroup(1, [&](Rank &rank) {
    DeviceArray array(rank, 64);
    std::vector<char> host(64);
    int32_t finite = 0;
    int64_t ticket = 0;
    ddphook_collective_t sum = plainSum(16, DDPHOOK_F32);
    auto expect = [&](ddphook_status_t status, const char *argument) {
      EXPECT_EQ(rank.show(status), std::string("INVALID_ARGUMENT: expected "
                                               "memory of GPU 0, but got host "
                                               "memory (argument '") +
                                       argument + "')");
    };
    expect(backend->cast(rank.device, host.data(), DDPHOOK_F32, array.get(),
                         DDPHOOK_F16, 16, &rank.error),
           "in");
    expect(backend->divide_by_group_size(rank.device, 3, array.get(),
                                         host.data(), 16, DDPHOOK_F32,
                                         &rank.error),
           "out");
    expect(backend->scale(rank.device, 2, host.data(), array.get(), 16,
                          DDPHOOK_F32, &rank.error),
           "in");
    expect(backend->add(rank.device, array.get(), host.data(), array.get(), 16,
                        DDPHOOK_F32, &rank.error),
           "b");
    expect(backend->subtract(rank.device, host.data(), array.get(), array.get(),
                             16, DDPHOOK_F32, &rank.error),
           "a");
    expect(backend->is_finite(rank.device, host.data(), 16, DDPHOOK_F32,
                              &finite, &rank.error),
           "in");
    expect(
        backend->copy(rank.device, array.get(), host.data(), 64, &rank.error),
        "out");
    expect(backend->memory_write(rank.device, host.data(), host.data(), 64,
                                 &rank.error),
           "memory");
    expect(backend->collective(rank.device, rank.communicator, &sum,
                               host.data(), array.get(), /*ticket=*/nullptr,
                               &rank.error),
           "in");
    expect(backend->collective(rank.device, rank.communicator, &sum,
                               array.get(), host.data(), &ticket, &rank.error),
           "out");
    // Nothing was harmed by any of that; memory of the caller's is fine.
    void *own = nullptr;
    ASSERT_EQ(cudaMalloc(&own, 64), cudaSuccess);
    EXPECT_EQ(rank.show(backend->copy(rank.device, array.get(), own, 64,
                                      &rank.error)),
              "OK");
    EXPECT_EQ(rank.show(backend->synchronize(rank.device, &rank.error)), "OK");
    EXPECT_EQ(cudaFree(own), cudaSuccess);
  });
}

TEST_P(CudaBackend, CastsOfOtherTypesAreRefused) {
  runAlone([&](Rank &rank) {
    DeviceArray array(rank, 64);
    EXPECT_EQ(rank.show(backend->cast(rank.device, array.get(), DDPHOOK_F32,
                                      array.get() + 32, DDPHOOK_F8E4M3FN, 4,
                                      &rank.error)),
              "UNSUPPORTED: the CUDA backend has no casts of type f8E4M3FN");
    EXPECT_EQ(
        rank.show(backend->cast(rank.device, array.get(), DDPHOOK_F8E4M3FN,
                                array.get() + 32, DDPHOOK_F32, 4, &rank.error)),
        "UNSUPPORTED: the CUDA backend has no casts of type f8E4M3FN");
    // Nothing failed for good.
    EXPECT_EQ(
        rank.show(backend->cast(rank.device, array.get(), DDPHOOK_F32,
                                array.get() + 32, DDPHOOK_F16, 4, &rank.error)),
        "OK");
  });
}

TEST_P(CudaBackend, MemoryOfAnotherGpuIsRefused) {
  int devices = 0;
  ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
  if (devices < 2)
    GTEST_SKIP() << "there is one GPU";
  runAlone([&](Rank &rank) {
    DeviceArray array(rank, 64);
    void *other = nullptr;
    ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
    ASSERT_EQ(cudaMalloc(&other, 64), cudaSuccess);
    EXPECT_EQ(rank.show(backend->copy(rank.device, other, array.get(), 64,
                                      &rank.error)),
              "INVALID_ARGUMENT: expected memory of GPU 0, but got memory of "
              "GPU 1 (argument 'in')");
    int current = -1;
    EXPECT_EQ(cudaGetDevice(&current), cudaSuccess);
    EXPECT_EQ(current, 1) << "the caller's device was changed";
    EXPECT_EQ(cudaFree(other), cudaSuccess);
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  });
}

TEST_P(CudaBackend, DevicesOfRanks) {
  int devices = 0;
  ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
  auto openWith = [&](int localRank, const std::string &options) {
    Rank rank;
    rank.index = localRank;
    GroupOptions group;
    group.options = options.c_str();
    std::string text = open(rank, group);
    if (text == "OK") {
      DeviceArray array(rank, 8);
      cudaPointerAttributes attributes = {};
      EXPECT_EQ(cudaPointerGetAttributes(&attributes, array.get()),
                cudaSuccess);
      text = "GPU " + std::to_string(attributes.device);
    }
    if (rank.device)
      backend->device_destroy(rank.device);
    return text;
  };
  const std::string count = std::to_string(devices);
  EXPECT_EQ(openWith(0, ""), "GPU 0");
  EXPECT_EQ(openWith(devices - 1, ""), "GPU " + std::to_string(devices - 1));
  EXPECT_EQ(openWith(0, "device=" + std::to_string(devices - 1)),
            "GPU " + std::to_string(devices - 1));
  EXPECT_EQ(openWith(0, "device=" + count),
            "INVALID_ARGUMENT: option device: expected a GPU from 0 to " +
                std::to_string(devices - 1) + ", but got " + count);
  if (devices > 1) {
    EXPECT_EQ(openWith(devices, ""),
              "INVALID_ARGUMENT: expected a GPU for local rank " + count +
                  ", but this process sees " + count +
                  "; the option device=N chooses one");
  }
}

TEST_P(CudaBackend, CallersStream) {
  runAlone([&](Rank &rank) {
    Stream first, second;
    DeviceArray in(rank, filled(kCount, 3)), out(rank, filled(kCount, 0));
    auto set = [&](cudaStream_t stream) {
      ASSERT_EQ(
          rank.show(backend->stream_set(rank.device, stream, &rank.error)),
          "OK");
    };
    set(first.get());
    std::vector<char> values = filled(kCount, 8);
    ASSERT_EQ(cudaMemcpyAsync(in.get(), values.data(), values.size(),
                              cudaMemcpyHostToDevice, first.get()),
              cudaSuccess);
    ASSERT_EQ(rank.show(backend->scale(rank.device, 2, in.get(), out.get(),
                                       kCount, DDPHOOK_F32, &rank.error)),
              "OK");
    // A stream that is set later goes on after the one before.
    set(second.get());
    ASSERT_EQ(rank.show(backend->scale(rank.device, 2, out.get(), in.get(),
                                       kCount, DDPHOOK_F32, &rank.error)),
              "OK");
    std::vector<char> got(values.size());
    ASSERT_EQ(cudaMemcpyAsync(got.data(), in.get(), got.size(),
                              cudaMemcpyDeviceToHost, second.get()),
              cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(second.get()), cudaSuccess);
    EXPECT_EQ(got, filled(kCount, 32));
    set(nullptr);
    EXPECT_EQ(in.read(), filled(kCount, 32));
  });
}

TEST_P(CudaBackend, CapturedSteps) {
  for (int ranks : {1, 2}) {
    bool hasRun = runGroup(ranks, [&](Rank &rank) {
      DeviceArray in(rank, filled(kCount, 1)), out(rank, filled(kCount, 0));
      DeviceArray sum(rank, filled(kCount, 0)), scaled(rank, filled(kCount, 0));
      ASSERT_EQ(cudaSetDevice(rank.index), cudaSuccess);
      Stream stream;
      ASSERT_EQ(rank.show(backend->stream_set(rank.device, stream.get(),
                                              &rank.error)),
                "OK");
      // Connects, which a capture should not.
      runStep(rank, in, out, sum, scaled);
      ASSERT_EQ(rank.show(backend->synchronize(rank.device, &rank.error)),
                "OK");
      Graph graph(stream.get());
      for (int i = 0; i < 3; ++i)
        runStep(rank, in, out, sum, scaled);
      graph.end();
      for (int round = 1; round <= 4; ++round) {
        const float value = static_cast<float>(round * (rank.index + 1));
        in.write(filled(kCount, value));
        out.write(filled(kCount, -1));
        graph.launch();
        ASSERT_EQ(rank.show(backend->synchronize(rank.device, &rank.error)),
                  "OK");
        const float mean =
            static_cast<float>(round * (ranks + 1)) / 2; // of 1 … ranks
        EXPECT_EQ(out.read(), filled(kCount, mean));
        EXPECT_EQ(sum.read(),
                  filled(kCount, mean * static_cast<float>(ranks) + value / 2));
      }
      // Steps that are not captured go on as before.
      runStep(rank, in, out, sum, scaled);
      EXPECT_EQ(out.read(),
                filled(kCount, static_cast<float>(4 * (ranks + 1)) / 2));
      ASSERT_EQ(
          rank.show(backend->stream_set(rank.device, nullptr, &rank.error)),
          "OK");
    });
    if (!hasRun)
      GTEST_SKIP() << "no " << ranks << " GPUs; passed with one";
  }
}

/// A captured graph that outlives what it needs: `end` is called with the graph
/// alive, and must come back.
static bool keepGraph(CudaBackend &test, const ddphook_backend_t &backend,
                      const std::function<void(Rank &)> &end) {
  std::atomic<int> launched{0};
  std::atomic<int> through{0};
  return test.runGroup(2, [&](Rank &rank) {
    DeviceArray in(rank, filled(kCount, 1)), out(rank, filled(kCount, 0));
    DeviceArray sum(rank, filled(kCount, 0)), scaled(rank, filled(kCount, 0));
    ASSERT_EQ(cudaSetDevice(rank.index), cudaSuccess);
    Stream stream;
    ASSERT_EQ(
        rank.show(backend.stream_set(rank.device, stream.get(), &rank.error)),
        "OK");
    runStep(rank, in, out, sum, scaled);
    ASSERT_EQ(rank.show(backend.synchronize(rank.device, &rank.error)), "OK");
    auto graph = std::make_unique<Graph>(stream.get());
    runStep(rank, in, out, sum, scaled);
    graph->end();
    graph->launch();
    ASSERT_EQ(rank.show(backend.synchronize(rank.device, &rank.error)), "OK");
    for (++launched; launched < 2;)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    // Where it does not come back the graph goes after all.
    std::thread patience([&] {
      for (int i = 0; i < 6000 && through < 2; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      EXPECT_EQ(through, 2) << "waiting for a graph";
      graph.reset();
    });
    end(rank);
    backend.communicator_destroy(rank.device, rank.communicator);
    rank.communicator = nullptr;
    ++through;
    patience.join();
    // The caller's stream goes before the device does.
    backend.stream_set(rank.device, nullptr, &rank.error);
  });
}

TEST_P(CudaBackend, LeavingWithAGraph) {
  if (!keepGraph(*this, *backend, [](Rank &) {}))
    GTEST_SKIP() << "no two GPUs";
}

TEST_P(CudaBackend, AFailureWithAGraph) {
  if (!keepGraph(*this, *backend, [&](Rank &rank) {
        backend->abort(rank.device, DDPHOOK_PEER_LOST, "rank 7 was lost");
        EXPECT_EQ(rank.show(backend->synchronize(rank.device, &rank.error)),
                  "PEER_LOST: rank 7 was lost");
      }))
    GTEST_SKIP() << "no two GPUs";
}

/// The caller's own work never ends. All that is taken down meanwhile comes
/// back, and what the GPU may still use stays.
TEST_P(CudaBackend, TeardownBesideWorkThatDoesNotEnd) {
  GroupOptions options;
  options.timeout = 0.5;
  std::atomic<bool> mayEnd{false};
  std::atomic<bool> isThrough{false};
  bool wasForced = false;
  std::thread patience([&] {
    for (int i = 0; i < 6000 && !isThrough; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    wasForced = !isThrough;
    mayEnd = true;
  });
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  Stream stream;
  runAlone(
      [&](Rank &rank) {
        DeviceArray array(rank, 64);
        const ddphook_matrix_t matrix = {0, 0, 0, 4, 4, 2};
        ddphook_matrix_list_t list = {};
        list.struct_size = sizeof(list);
        list.end = 16;
        list.matrices = &matrix;
        list.matrix_count = 1;
        ddphook_matrices_t *matrices = nullptr;
        ASSERT_EQ(rank.show(backend->matrices_create(
                      rank.device, &list, DDPHOOK_F32, &matrices, &rank.error)),
                  "OK");
        ASSERT_EQ(rank.show(backend->stream_set(rank.device, stream.get(),
                                                &rank.error)),
                  "OK");
        auto wait = [](void *flag) {
          while (!*static_cast<std::atomic<bool> *>(flag))
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        };
        ASSERT_EQ(cudaLaunchHostFunc(stream.get(), wait, &mayEnd), cudaSuccess);
        EXPECT_EQ(backend->synchronize(rank.device, &rank.error),
                  DDPHOOK_DEADLINE_EXCEEDED);
        backend->matrices_destroy(rank.device, matrices);
      },
      options);
  isThrough = true;
  patience.join();
  EXPECT_FALSE(wasForced) << "something waited for the caller's work";
  EXPECT_EQ(cudaStreamSynchronize(stream.get()), cudaSuccess);
}

/// A rank that gives up joining aborts, which others notice and tell it of: it
/// says why it gave up all the same.
TEST_P(CudaBackend, JoiningInVain) {
  if (isReal())
    GTEST_SKIP() << "each attempt would take NCCL a while";
  for (int attempt = 0; attempt < 8; ++attempt) {
    MemoryStore store;
    const ddphook_backend_store_t table = toBackendStore(store);
    Rank members[2];
    std::vector<std::string> texts(2);
    for (int rank : {0, 1}) {
      members[rank].index = rank;
      GroupOptions options;
      options.timeout = rank == 0 ? 0.3 : 60;
      ASSERT_EQ(open(members[rank], options), "OK");
    }
    cudaDeviceProp properties = {};
    ASSERT_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
    const int capability = properties.major * 10 + properties.minor;
    auto join = [&](int rank) {
      const auto config = groupOnOneMachine(3, rank, table, "group");
      Rank &member = members[rank];
      texts[static_cast<size_t>(rank)] =
          member.show(backend->communicator_create(
              member.device, &config, &member.communicator, &member.error));
      // As the runtime tells the others of a failure.
      backend->abort(members[1 - rank].device, DDPHOOK_ABORTED, "told");
      store.fail(Status(DDPHOOK_ABORTED, "told"));
    };
    std::thread first(join, 0), second(join, 1), third([&] {
      // It agrees, and does not come.
      cuda::DeviceChoice device;
      device.uuid = "third";
      device.capability = capability;
      std::vector<ncclUniqueId> ids;
      cuda::agreeOnIds(groupOnOneMachine(3, 2, table, "group"),
                       cuda::CudaOptions(), device, Deadline::after(60), &ids)
          .ignore();
    });
    for (std::thread *thread : {&first, &second, &third})
      thread->join();
    EXPECT_EQ(texts[0].find("DEADLINE_EXCEEDED: "), 0u) << texts[0];
    for (Rank &member : members)
      backend->device_destroy(member.device);
  }
}

TEST_P(CudaBackend, WhatCannotBeCaptured) {
  runGroup(1, [&](Rank &rank) {
    DeviceArray array(rank, filled(16, 1));
    Stream stream, other;
    ASSERT_EQ(
        rank.show(backend->stream_set(rank.device, stream.get(), &rank.error)),
        "OK");
    Graph graph(stream.get());
    std::vector<char> host(64);
    void *memory = nullptr;
    int32_t finite = 0;
    auto expect = [&](ddphook_status_t status, const std::string &what) {
      EXPECT_EQ(rank.show(status), "FAILED_PRECONDITION: " + what +
                                       " cannot be captured in a graph");
    };
    expect(backend->is_finite(rank.device, array.get(), 16, DDPHOOK_F32,
                              &finite, &rank.error),
           "testing for non-finite numbers");
    double squares = 0;
    expect(backend->sum_squares(rank.device, array.get(), 16, DDPHOOK_F32,
                                &squares, &rank.error),
           "summing squares");
    expect(backend->memory_write(rank.device, array.get(), host.data(), 64,
                                 &rank.error),
           "writing device memory");
    expect(backend->memory_read(rank.device, host.data(), array.get(), 64,
                                &rank.error),
           "reading device memory");
    expect(backend->memory_alloc(rank.device, 64, 256, &memory, &rank.error),
           "allocating memory");
    expect(backend->synchronize(rank.device, &rank.error), "waiting");
    expect(backend->stream_set(rank.device, other.get(), &rank.error),
           "leaving a stream");
    // The capture goes on.
    EXPECT_EQ(rank.show(backend->scale(rank.device, 3, array.get(), array.get(),
                                       16, DDPHOOK_F32, &rank.error)),
              "OK");
    graph.end();
    graph.launch();
    EXPECT_EQ(array.read(), filled(16, 3));
    ASSERT_EQ(rank.show(backend->stream_set(rank.device, nullptr, &rank.error)),
              "OK");
  });
}

TEST_P(CudaBackend, TwoRanksOnOneGpu) {
  std::mutex mutex;
  std::vector<std::string> refusals(3);
  GroupOptions options;
  options.options = "device=0";
  options.onRefusal = [&](int rank, const std::string &text) {
    std::lock_guard<std::mutex> lock(mutex);
    refusals[static_cast<size_t>(rank)] = text;
  };
  runGroup(3, [](Rank &) { FAIL() << "expected that nobody joins"; }, options);
  for (const std::string &text : refusals)
    EXPECT_EQ(text.find("UNSUPPORTED: expected every rank to have its own GPU, "
                        "but ranks 0 and 1 share one; NCCL "),
              0u)
        << text;
}

TEST_P(CudaBackend, SeveralRootsAndRegisteredMemory) {
  for (const char *text :
       {"roots=3", "roots=9,watchdog_ms=1",
        "register=1,min_ctas=1,max_ctas=8,comm_priority=0"}) {
    GroupOptions options;
    options.options = text;
    bool hasRun = runGroup(
        4,
        [&](Rank &rank) {
          DeviceArray in(rank, filled(kCount, 1)), out(rank, filled(kCount, 0));
          DeviceArray sum(rank, filled(kCount, 0));
          DeviceArray scaled(rank, filled(kCount, 0));
          runStep(rank, in, out, sum, scaled);
          EXPECT_EQ(out.read(), filled(kCount, 1));
          EXPECT_EQ(sum.read(), filled(kCount, 4.5f));
        },
        options);
    if (!hasRun)
      GTEST_SKIP() << "no four GPUs";
  }
}
