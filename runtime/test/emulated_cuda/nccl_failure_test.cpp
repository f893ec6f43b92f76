// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What has to hang hangs, and ends when the communicator is aborted; faults
// come where they were asked for.

#include "nccl_test_util.h"

#include <atomic>
#include <csignal>
#include <thread>

using namespace emulated_cuda_test;

namespace {

/// How long something has to hang to be taken to hang.
constexpr int hangMs = 300;

class Reducer {
public:
  explicit Reducer(Rank &rank) : rank(rank), data(std::vector<char>(4000, 0)) {}
  ncclResult_t operator()() {
    return rank.finish(ncclAllReduce(data.data(), data.data(), 1000,
                                     ncclFloat32, ncclSum, rank.communicator(),
                                     rank.stream()));
  }

private:
  Rank &rank;
  DeviceBytes data;
};

/// A call on a thread of its own.
class Background {
public:
  explicit Background(const std::function<ncclResult_t()> &call)
      : thread([this, call] {
          result = call();
          hasEnded = true;
        }) {}
  ~Background() {
    if (thread.joinable())
      thread.join();
  }
  /// Whether it has not come back after a while.
  bool hangs() const {
    usleep(hangMs * 1000);
    return !hasEnded;
  }
  ncclResult_t join() {
    thread.join();
    return result;
  }

private:
  ncclResult_t result = ncclSuccess;
  std::atomic<bool> hasEnded{false};
  std::thread thread;
};

/// A collective that was captured and can be launched.
class CapturedReduction {
public:
  std::string capture(Rank &rank) {
    REQUIRE_CUDA(cudaStreamBeginCapture(rank.stream(),
                                        cudaStreamCaptureModeThreadLocal));
    REQUIRE_NCCL(ncclAllReduce(data.data(), out.data(), 16, ncclFloat32,
                               ncclSum, rank.communicator(), rank.stream()));
    REQUIRE_CUDA(cudaStreamEndCapture(rank.stream(), &graph));
    REQUIRE_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    return "";
  }
  std::string launch(Rank &rank) {
    REQUIRE_CUDA(cudaGraphLaunch(exec, rank.stream()));
    REQUIRE_CUDA(cudaStreamSynchronize(rank.stream()));
    return "";
  }
  bool hasRun() const { return out.read() != std::vector<char>(64, 2); }
  std::string destroyGraph() {
    REQUIRE_CUDA(cudaGraphDestroy(graph));
    return "";
  }
  std::string destroyExecutable() {
    REQUIRE_CUDA(cudaGraphExecDestroy(exec));
    return "";
  }

private:
  DeviceBytes data = DeviceBytes(std::vector<char>(64, 1));
  DeviceBytes out = DeviceBytes(std::vector<char>(64, 2));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
};

/// The stream still runs after a while, and `expected` is the communicator's
/// state; then the stream ends because the communicator is aborted.
std::string hangUntilAborted(Rank &rank, ncclResult_t expected) {
  usleep(hangMs * 1000);
  EXPECT_TEXT(cudaStreamQuery(rank.stream()), cudaErrorNotReady);
  ncclResult_t state;
  REQUIRE_NCCL(ncclCommGetAsyncError(rank.communicator(), &state));
  EXPECT_TEXT(state, expected);
  REQUIRE_NCCL(ncclCommAbort(rank.release()));
  REQUIRE_CUDA(cudaStreamSynchronize(rank.stream()));
  return "";
}

TEST(NcclFailure, ADeadPeerIsNotNoticed) {
  SharedId id;
  auto run = [&](int rank) -> std::string {
    if (rank == 1)
      setenv("EMULATED_CUDA_FAULT", "exit:2", 1);
    Rank self(rank, 3, false);
    REQUIRE_NCCL(self.join());
    Reducer reduce(self);
    REQUIRE_NCCL(reduce());
    REQUIRE_CUDA(cudaStreamSynchronize(self.stream()));
    // Nobody dies while another one is in the first collective still.
    id.meet(3);
    REQUIRE_NCCL(reduce());
    return hangUntilAborted(self, ncclSuccess);
  };
  runAll(3, id, run, {0, SIGKILL, 0});
}

TEST(NcclFailure, AnAsynchronousErrorShowsAndTheOthersHang) {
  SharedId id;
  runAll(2, id, [](int rank) -> std::string {
    setenv("EMULATED_CUDA_FAULT", "nccl_async@1:2", 1);
    Rank self(rank, 2, false);
    REQUIRE_NCCL(self.join());
    Reducer reduce(self);
    REQUIRE_NCCL(reduce());
    REQUIRE_CUDA(cudaStreamSynchronize(self.stream()));
    // Where the error comes at once, it may be this call's already.
    ncclResult_t second = reduce();
    if (rank == 0 || second != ncclRemoteError)
      EXPECT_TEXT(second, ncclSuccess);
    return hangUntilAborted(self, rank == 1 ? ncclRemoteError : ncclSuccess);
  });
}

TEST(NcclFailure, AStalledCollectiveHangsEverywhere) {
  SharedId id;
  runAll(2, id, [](int rank) -> std::string {
    setenv("EMULATED_CUDA_FAULT", "nccl_stall@0:1", 1);
    Rank self(rank, 2, false);
    REQUIRE_NCCL(self.join());
    Reducer reduce(self);
    REQUIRE_NCCL(reduce());
    return hangUntilAborted(self, ncclSuccess);
  });
}

/// Joins as one of two ranks, sees that this does not end, and gives up. All of
/// the `count` ranks that do this look before one gives up, which the others
/// see.
static std::string joinInVain(int rank, SharedId &id, int count) {
  Rank self(rank, 2, false);
  EXPECT_TEXT(self.begin(), ncclInProgress);
  usleep(hangMs * 1000);
  ncclResult_t state;
  REQUIRE_NCCL(ncclCommGetAsyncError(self.communicator(), &state));
  EXPECT_TEXT(state, ncclInProgress);
  id.meet(count);
  REQUIRE_NCCL(ncclCommAbort(self.release()));
  return "";
}

TEST(NcclFailure, AMissingRankIsWaitedForUntilTheAbort) {
  SharedId id;
  runAll(2, id, [&](int rank) -> std::string {
    if (rank == 1)
      return "";
    return joinInVain(rank, id, 1);
  });
}

TEST(NcclFailure, AStalledInitializationEndsWithTheAbort) {
  SharedId id;
  runAll(2, id, [&](int rank) -> std::string {
    setenv("EMULATED_CUDA_FAULT", "nccl_init_stall@1", 1);
    return joinInVain(rank, id, 2);
  });
}

/// Aborts what the call on another thread is in. NCCL lets that call end first
/// where the abort is in a group, and frees the communicator with its end.
static std::string abortDuring(Background &call, ncclComm_t comm) {
  REQUIRE_NCCL(ncclGroupStart());
  REQUIRE_NCCL(ncclCommAbort(comm));
  EXPECT_TEXT(call.join(), ncclInternalError);
  REQUIRE_NCCL(ncclGroupEnd());
  return "";
}

TEST(NcclFailure, ABlockingCallWaitsForItsPeers) {
  SharedId id;
  runAll(2, id, [&](int rank) -> std::string {
    Rank self(rank, 2, true);
    REQUIRE_NCCL(self.join());
    Reducer reduce(self);
    if (rank == 1)
      id.meet(2);
    Background call([&] { return reduce(); });
    const bool hung = rank == 1 || call.hangs();
    if (rank == 0)
      id.meet(2);
    EXPECT_TEXT(call.join(), ncclSuccess);
    EXPECT_TEXT(hung, true);
    REQUIRE_CUDA(cudaStreamSynchronize(self.stream()));
    return self.leave();
  });
}

TEST(NcclFailure, AnAbortEndsABlockingCall) {
  SharedId id;
  runAll(2, id, [&](int rank) -> std::string {
    Rank self(rank, 2, true);
    REQUIRE_NCCL(self.join());
    if (rank == 0) {
      Reducer reduce(self);
      Background call([&] { return reduce(); });
      EXPECT_TEXT(call.hangs(), true);
      EXPECT_TEXT(abortDuring(call, self.communicator()), "");
    }
    id.meet(2);
    return "";
  });
}

TEST(NcclFailure, AnAbortEndsABlockingInitialization) {
  SharedId id;
  runAll(1, id, [&](int) -> std::string {
    ncclUniqueId unique;
    REQUIRE_NCCL(ncclGetUniqueId(&unique));
    ncclComm_t comm = nullptr;
    Background call([&] { return ncclCommInitRank(&comm, 2, unique, 0); });
    EXPECT_TEXT(call.hangs(), true);
    return abortDuring(call, __atomic_load_n(&comm, __ATOMIC_ACQUIRE));
  });
}

TEST(NcclFailure, WhatIsInACallIsNotToBeFreed) {
  SharedId id;
  auto run = [&](int rank) -> std::string {
    Rank self(rank, 2, true);
    REQUIRE_NCCL(self.join());
    id.meet(2);
    if (rank == 1)
      return "";
    Reducer reduce(self);
    Background call([&] { return reduce(); });
    EXPECT_TEXT(call.hangs(), true);
    return ncclCommAbort(self.communicator()) ? "failed" : "freed";
  };
  runAll(2, id, run, {SIGABRT, 0});
}

TEST(NcclFailure, AnInitializationFails) {
  SharedId id;
  runAll(1, id, [](int) -> std::string {
    setenv("EMULATED_CUDA_FAULT", "nccl_init", 1);
    Rank self(0, 1, false);
    EXPECT_TEXT(self.join(), ncclSystemError);
    REQUIRE_NCCL(ncclCommAbort(self.release()));
    REQUIRE_NCCL(self.join());
    return self.leave();
  });
}

TEST(NcclFailure, ALaunchFails) {
  SharedId id;
  runAll(1, id, [](int) -> std::string {
    setenv("EMULATED_CUDA_FAULT", "nccl_launch:2", 1);
    Rank self(0, 1, false);
    REQUIRE_NCCL(self.join());
    Reducer reduce(self);
    REQUIRE_NCCL(reduce());
    EXPECT_TEXT(reduce(), ncclInternalError);
    REQUIRE_CUDA(cudaStreamSynchronize(self.stream()));
    REQUIRE_NCCL(ncclCommAbort(self.release()));
    return "";
  });
}

TEST(NcclFailure, ACorruptedResultIsWrong) {
  SharedId id;
  runAll(1, id, [](int) -> std::string {
    setenv("EMULATED_CUDA_FAULT", "nccl_corrupt", 1);
    Rank self(0, 1, false);
    REQUIRE_NCCL(self.join());
    std::vector<char> bytes(64, 1);
    DeviceBytes data(bytes);
    REQUIRE_NCCL(self.finish(
        ncclAllReduce(data.data(), data.data(), 16, ncclFloat32, ncclSum,
                      self.communicator(), self.stream())));
    REQUIRE_CUDA(cudaStreamSynchronize(self.stream()));
    if (data.read() == bytes)
      return "the result is right";
    return self.leave();
  });
}

/// Puts a collective of either communicator into the first one's stream. Gives
/// "", or what went wrong.
std::string reduceBoth(Rank &first, Rank &second, DeviceBytes &data) {
  for (Rank *rank : {&first, &second}) {
    REQUIRE_NCCL(rank->join());
  }
  for (Rank *rank : {&first, &second}) {
    REQUIRE_NCCL(ncclAllReduce(data.data(), data.data(), 16, ncclFloat32,
                               ncclSum, rank->communicator(), first.stream()));
  }
  return "";
}

TEST(NcclFailure, AnAbortWaitsForWhatOthersDoBefore) {
  SharedId id;
  runAll(1, id, [](int) -> std::string {
    setenv("EMULATED_CUDA_FAULT", "nccl_stall", 1);
    Rank first(0, 1, true), second(0, 1, true);
    DeviceBytes data(std::vector<char>(64, 1));
    EXPECT_TEXT(reduceBoth(first, second, data), "");
    Background abort([&] { return ncclCommAbort(second.release()); });
    const bool hung = abort.hangs();
    REQUIRE_NCCL(ncclCommAbort(first.release()));
    EXPECT_TEXT(abort.join(), ncclSuccess);
    EXPECT_TEXT(hung, true);
    return "";
  });
}

TEST(NcclFailure, AbortsOfOneGroupActTogether) {
  SharedId id;
  runAll(1, id, [](int) -> std::string {
    setenv("EMULATED_CUDA_FAULT", "nccl_stall", 1);
    Rank first(0, 1, true), second(0, 1, true);
    DeviceBytes data(std::vector<char>(64, 1));
    EXPECT_TEXT(reduceBoth(first, second, data), "");
    REQUIRE_NCCL(ncclGroupStart());
    REQUIRE_NCCL(ncclCommAbort(second.release()));
    REQUIRE_NCCL(ncclCommAbort(first.release()));
    REQUIRE_NCCL(ncclGroupEnd());
    REQUIRE_CUDA(cudaStreamSynchronize(first.stream()));
    return "";
  });
}

TEST(NcclFailure, ACollectiveAfterTheAbortDoesNothing) {
  SharedId id;
  runAll(1, id, [](int) -> std::string {
    Rank self(0, 1, true);
    REQUIRE_NCCL(self.join());
    CapturedReduction captured;
    EXPECT_TEXT(captured.capture(self), "");
    Background abort([&] { return ncclCommAbort(self.release()); });
    // Only when the graphs are gone does the abort end.
    std::string text = abort.hangs() ? "" : "the abort did not wait";
    if (text.empty())
      text = captured.launch(self);
    if (text.empty() && captured.hasRun())
      text = "the aborted collective ran";
    EXPECT_TEXT(captured.destroyGraph(), "");
    if (text.empty() && !abort.hangs())
      text = "the abort did not wait for the executable graph";
    EXPECT_TEXT(captured.destroyExecutable(), "");
    EXPECT_TEXT(abort.join(), ncclSuccess);
    return text;
  });
}

TEST(NcclFailure, AGraphHoldsItsCommunicator) {
  SharedId id;
  runAll(1, id, [](int) -> std::string {
    Rank self(0, 1, true);
    REQUIRE_NCCL(self.join());
    CapturedReduction captured;
    EXPECT_TEXT(captured.capture(self), "");
    Background destruction([&] { return ncclCommDestroy(self.release()); });
    std::string text =
        destruction.hangs() ? "" : "the destruction did not wait";
    EXPECT_TEXT(captured.destroyGraph(), "");
    EXPECT_TEXT(captured.destroyExecutable(), "");
    EXPECT_TEXT(destruction.join(), ncclSuccess);
    return text;
  });
}

TEST(NcclFailure, WhoLeavesWaitsForTheOthers) {
  SharedId id;
  runAll(3, id, [&](int rank) -> std::string {
    Rank self(rank, 3, false);
    REQUIRE_NCCL(self.join());
    if (rank == 2) {
      id.meet(3);
      return self.leave();
    }
    Background destruction([&] { return ncclCommDestroy(self.release()); });
    const bool hung = destruction.hangs();
    id.meet(3);
    EXPECT_TEXT(destruction.join(), ncclSuccess);
    EXPECT_TEXT(hung, true);
    return "";
  });
}

TEST(NcclFailure, WhoLeavesDoesNotWaitForAnAbortedOrDeadRank) {
  for (bool dies : {false, true}) {
    SharedId id;
    auto run = [&](int rank) -> std::string {
      Rank self(rank, 2, false);
      REQUIRE_NCCL(self.join());
      if (rank == 0)
        return self.leave();
      usleep(hangMs * 1000);
      if (dies)
        kill(getpid(), SIGKILL);
      REQUIRE_NCCL(ncclCommAbort(self.release()));
      return "";
    };
    runAll(2, id, run, {0, dies ? SIGKILL : 0});
  }
}

} // namespace
