//===- nccl_failure_test.cpp - NCCL's failures on the emulated device -----===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What has to hang hangs, and ends when the communicator is aborted; faults
// come where they were asked for.
//
//===----------------------------------------------------------------------===//
#include "nccl_test_util.h"

#include <csignal>

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
  auto run = [](int rank) -> std::string {
    if (rank == 1)
      setenv("EMULATED_CUDA_FAULT", "exit:2", 1);
    Rank self(rank, 3, false);
    REQUIRE_NCCL(self.join());
    Reducer reduce(self);
    REQUIRE_NCCL(reduce());
    REQUIRE_CUDA(cudaStreamSynchronize(self.stream()));
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

TEST(NcclFailure, ACollectiveAfterTheAbortDoesNothing) {
  SharedId id;
  runAll(1, id, [](int) -> std::string {
    Rank self(0, 1, true);
    REQUIRE_NCCL(self.join());
    DeviceBytes data(std::vector<char>(64, 1));
    DeviceBytes out(std::vector<char>(64, 2));
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    REQUIRE_CUDA(cudaStreamBeginCapture(self.stream(),
                                        cudaStreamCaptureModeThreadLocal));
    REQUIRE_NCCL(ncclAllReduce(data.data(), out.data(), 16, ncclFloat32,
                               ncclSum, self.communicator(), self.stream()));
    REQUIRE_CUDA(cudaStreamEndCapture(self.stream(), &graph));
    REQUIRE_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    REQUIRE_NCCL(ncclCommAbort(self.release()));
    REQUIRE_CUDA(cudaGraphLaunch(exec, self.stream()));
    REQUIRE_CUDA(cudaStreamSynchronize(self.stream()));
    if (out.read() != std::vector<char>(64, 2))
      return "the aborted collective ran";
    REQUIRE_CUDA(cudaGraphExecDestroy(exec));
    REQUIRE_CUDA(cudaGraphDestroy(graph));
    return "";
  });
}

} // namespace
