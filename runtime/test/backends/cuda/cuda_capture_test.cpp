// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Captures behind work that may not have ended, and failures during captures.
// Linked with the backend, as cuda_backend_test.cpp is.

#include "backend/backend_store.h"
#include "backend/backend_test_util.h"
#include "cuda_backend_test_util.h"
#include "store/store.h"

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <thread>

using namespace ddphook;
using namespace ddphook::test;

namespace {

class CudaCapture : public LinkedBackendTest {
protected:
  /// The ticket of a sum over `group`.
  int64_t start(Rank &rank, ddphook_communicator_t *group, DeviceArray &in,
                DeviceArray &out) {
    const ddphook_collective_t sum = plainSum(kCount, DDPHOOK_F32);
    int64_t ticket = 0;
    EXPECT_EQ(rank.show(backend->collective(rank.device, group, &sum, in.get(),
                                            out.get(), &ticket, &rank.error)),
              "OK");
    return ticket;
  }
  std::string wait(Rank &rank, int64_t ticket) {
    return rank.show(backend->wait(rank.device, ticket, &rank.error));
  }
  std::string synchronize(Rank &rank) {
    return rank.show(backend->synchronize(rank.device, &rank.error));
  }
  /// A group of the rank alone.
  ddphook_communicator_t *joinAlone(Rank &rank) {
    ddphook_communicator_config_t config = {};
    config.struct_size = sizeof(config);
    config.size = 1;
    const int32_t self = rank.index;
    config.world_ranks = &self;
    config.max_wire_bytes = kCount * sizeof(float);
    ddphook_communicator_t *group = nullptr;
    EXPECT_EQ(rank.show(backend->communicator_create(rank.device, &config,
                                                     &group, &rank.error)),
              "OK");
    return group;
  }

  static constexpr int64_t kCount = 1000;
};
INSTANTIATE_TEST_SUITE_P(, CudaCapture,
                         testing::Values(DDPHOOK_TEST_CUDA_BACKEND),
                         [](const auto &info) { return info.param; });

} // namespace

/// A capture waits for its own collectives alone, also where those before it
/// may not have ended: CUDA refuses to wait for anything else in it.
TEST_P(CudaCapture, BehindACollective) {
  GroupOptions options;
  // Nobody looks meanwhile at what has ended.
  options.options = "watchdog_ms=60000";
  auto body = [&](Rank &rank) {
    DeviceArray in(rank, filled(kCount, 1)), out(rank, filled(kCount, 0));
    DeviceArray alone(rank, filled(kCount, 0));
    ddphook_communicator_t *own = joinAlone(rank);
    ASSERT_EQ(cudaSetDevice(rank.index), cudaSuccess);
    Stream stream;
    set(rank, stream.get());
    EXPECT_EQ(wait(rank, start(rank, rank.communicator, in, out)), "OK");
    ASSERT_EQ(synchronize(rank), "OK");
    const int64_t before = start(rank, rank.communicator, in, out);
    EXPECT_EQ(wait(rank, before), "OK");
    ASSERT_EQ(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal),
              cudaSuccess);
    EXPECT_EQ(wait(rank, start(rank, own, in, alone)), "OK");
    EXPECT_EQ(wait(rank, before), "OK");
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(stream.get(), &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    EXPECT_EQ(cudaGraphLaunch(executable, stream.get()), cudaSuccess);
    EXPECT_EQ(synchronize(rank), "OK");
    EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
    EXPECT_EQ(alone.read(), filled(kCount, 1));
    EXPECT_EQ(out.read(), filled(kCount, 2));
    backend->communicator_destroy(rank.device, own);
    set(rank, nullptr);
  };
  if (!runGroup(2, body, options))
    GTEST_SKIP() << "no two GPUs";
}

/// A thread that joins a group leaves captures of others alone.
TEST_P(CudaCapture, WhileAGroupIsJoined) {
  MemoryStore store;
  const ddphook_backend_store_t table = toBackendStore(store);
  auto body = [&](Rank &rank) {
    ASSERT_EQ(cudaSetDevice(rank.index), cudaSuccess);
    Stream stream;
    ASSERT_EQ(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal),
              cudaSuccess);
    std::thread([&] {
      auto config = groupOnOneMachine(2, rank.index, table, "another group");
      config.max_wire_bytes = 64;
      ddphook_communicator_t *group = nullptr;
      EXPECT_EQ(rank.show(backend->communicator_create(rank.device, &config,
                                                       &group, &rank.error)),
                "OK");
      backend->communicator_destroy(rank.device, group);
    }).join();
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream.get(), &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  };
  if (!runGroup(2, body))
    GTEST_SKIP() << "no two GPUs";
}

/// What is started before a capture and waited for behind it is waited for.
TEST_P(CudaCapture, BetweenACollectiveAndItsWait) {
  auto body = [&](Rank &rank) {
    DeviceArray in(rank, filled(kCount, 1)), out(rank, filled(kCount, 0));
    DeviceArray alone(rank, filled(kCount, 0));
    ASSERT_EQ(cudaSetDevice(rank.index), cudaSuccess);
    Stream stream;
    set(rank, stream.get());
    // The other rank waits for this one, on its GPU.
    if (rank.index == 1)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const int64_t before = start(rank, rank.communicator, in, out);
    ASSERT_EQ(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal),
              cudaSuccess);
    EXPECT_EQ(wait(rank, start(rank, rank.communicator, in, alone)), "OK");
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(stream.get(), &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    EXPECT_EQ(wait(rank, before), "OK");
    EXPECT_EQ(rank.show(backend->scale(rank.device, 3, out.get(), out.get(),
                                       kCount, DDPHOOK_F32, &rank.error)),
              "OK");
    EXPECT_EQ(out.read(), filled(kCount, 6));
    set(rank, nullptr);
  };
  if (!runGroup(2, body))
    GTEST_SKIP() << "no two GPUs";
}

/// A failure comes during a capture, and a collective is behind work of the
/// caller's, in another stream, that does not end. All calls tell of the
/// failure, and all that is taken down meanwhile comes back.
TEST_P(CudaCapture, AFailureBesideWorkThatDoesNotEnd) {
  std::atomic<bool> mayEnd{false};
  std::atomic<int> through{0};
  bool wasForced = false;
  std::thread patience([&] {
    for (int i = 0; i < 6000 && through < 2; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    wasForced = through < 2;
    mayEnd = true;
  });
  auto waitForFlag = [](void *flag) {
    while (!*static_cast<std::atomic<bool> *>(flag))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  const bool hasRun = runGroup(2, [&](Rank &rank) {
    ASSERT_EQ(cudaSetDevice(rank.index), cudaSuccess);
    Stream held, captured;
    {
      DeviceArray array(rank, filled(kCount, 1));
      set(rank, held.get());
      ASSERT_EQ(cudaLaunchHostFunc(held.get(), waitForFlag, &mayEnd),
                cudaSuccess);
      start(rank, rank.communicator, array, array);
      set(rank, captured.get());
      ASSERT_EQ(cudaStreamBeginCapture(captured.get(),
                                       cudaStreamCaptureModeThreadLocal),
                cudaSuccess);
      const int64_t ticket = start(rank, rank.communicator, array, array);
      backend->abort(rank.device, DDPHOOK_PEER_LOST, "rank 7 was lost");
      EXPECT_EQ(wait(rank, ticket), "PEER_LOST: rank 7 was lost");
      EXPECT_EQ(synchronize(rank), "PEER_LOST: rank 7 was lost");
    }
    backend->communicator_destroy(rank.device, rank.communicator);
    rank.communicator = nullptr;
    backend->device_destroy(rank.device);
    rank.device = nullptr;
    ++through;
    cudaGraph_t graph = nullptr;
    EXPECT_NE(cudaStreamEndCapture(captured.get(), &graph), cudaSuccess);
    while (!mayEnd)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(cudaStreamSynchronize(held.get()), cudaSuccess);
  });
  if (!hasRun)
    through = 2;
  patience.join();
  EXPECT_FALSE(wasForced) << "something waited for the caller's work";
  if (!hasRun)
    GTEST_SKIP() << "no two GPUs";
}
