// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks as processes through the C ABI, on the emulated device, which fails
// where its environment says so: every rank gets a status and a clear line
// within the deadline. Every rank sees one GPU, its own.

#include "cuda_job_test_util.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <new>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace ddphook;
using namespace ddphook::test;

namespace {

constexpr int64_t kCount = 100000;

struct Job {
  int ranks = 2;
  double timeout = 30;
  /// EMULATED_CUDA_FAULT, and other variables.
  std::string fault;
  std::map<std::string, std::string> environment = {};
  bool sharesGpu = false;
  /// Gives every rank an NCCL_HOSTID of its own, with a space in it.
  bool namesHosts = false;
  /// What its steps run.
  std::string kind = "all_reduce";
  /// Called by a rank before its second step.
  std::function<void(int)> beforeSecond = {};
  /// Process groups of all ranks, each with a collective of every step.
  int groups = 1;
  /// Called by a rank that is through with its steps, before it leaves.
  std::function<void(int)> beforeLeaving = {};
  /// Called by a rank that has left.
  std::function<void(int)> afterLeaving = {};
};

std::string runSteps(const Job &job, int rank, ddphook_context_t *context,
                     TestModule &module) {
  void *data = nullptr, *other = nullptr;
  const size_t bytes = kCount * sizeof(float);
  ddphook_status_t status = ddphook_memory_alloc(context, bytes, &data);
  if (status == DDPHOOK_OK)
    status = ddphook_memory_alloc(context, bytes, &other);
  if (status != DDPHOOK_OK)
    return "alloc " + show(status);
  std::string result;
  for (int i = 0; i < 3 && (result.empty() || result == "OK"); ++i) {
    if (i == 1 && job.beforeSecond)
      job.beforeSecond(rank);
    result = deviceStep(module, job.groups, data, other);
  }
  if (result != "OK") {
    // It stays, and comes at once.
    auto begin = std::chrono::steady_clock::now();
    std::string again = deviceStep(module, job.groups, data, other);
    if (again != result)
      result = "first " + result + ", then " + again;
    if (std::chrono::steady_clock::now() - begin >
        std::chrono::milliseconds(500))
      result = "later calls wait: " + result;
  }
  ddphook_memory_free(context, data, bytes);
  ddphook_memory_free(context, other, bytes);
  if (job.beforeLeaving)
    job.beforeLeaving(rank);
  return result;
}

std::vector<RankResult> run(const Job &job) {
  int port = freePort();
  return runRanks(job.ranks, [&](int rank) {
    ::setenv("RANK", std::to_string(rank).c_str(), 1);
    ::setenv("EMULATED_CUDA_DEVICES", "1", 1);
    ::setenv("EMULATED_CUDA_FIRST_DEVICE",
             std::to_string(job.sharesGpu ? 0 : rank).c_str(), 1);
    ::setenv("EMULATED_CUDA_FAULT", job.fault.c_str(), 1);
    for (const auto &[name, value] : job.environment)
      ::setenv(name.c_str(), value.c_str(), 1);
    if (job.namesHosts)
      ::setenv("NCCL_HOSTID", ("host " + std::to_string(rank)).c_str(), 1);
    const bool isAllReduce = job.kind == "all_reduce";
    const TestCollective collective =
        isAllReduce ? TestCollective{kCount, "f32", "f16", true}
                    : TestCollective{kCount}.as(job.kind, /*from=*/0);
    const std::unique_ptr<TestModule> module =
        deviceModule(job.ranks, job.groups, collective);
    ddphook_options_t options =
        jobOptions(rank, job.ranks, port, "auto", job.timeout);
    options.backend = "cuda_emulated";
    std::string text =
        withModule(options, *module, [&](ddphook_context_t *context) {
          return runSteps(job, rank, context, *module);
        });
    if (job.afterLeaving)
      job.afterLeaving(rank);
    return text;
  });
}

/// The rank where it happens says `cause`; the others heard of it.
void expectCause(const std::vector<RankResult> &results, size_t rank,
                 const std::string &cause) {
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_FALSE(results[i].isHung);
    expectContains(results[i].text, cause);
    if (i != rank) {
      expectContains(results[i].text, "ABORTED: rank " + std::to_string(rank));
    }
  }
}

/// With communicators that are not blocking, and with blocking ones.
class NcclFaults : public testing::TestWithParam<bool> {
protected:
  static std::vector<RankResult> run(Job job) {
    job.environment["DDPHOOK_BACKEND_OPTIONS"] =
        GetParam() ? "blocking=1" : "blocking=0";
    return ::run(job);
  }
};
INSTANTIATE_TEST_SUITE_P(, NcclFaults, testing::Bool(), [](const auto &info) {
  return info.param ? "Blocking" : "NonBlocking";
});

double longest(const std::vector<RankResult> &results) {
  double seconds = 0;
  for (const RankResult &result : results)
    seconds = std::max(seconds, result.seconds);
  return seconds;
}

} // namespace

TEST_P(NcclFaults, NothingFails) {
  for (int ranks : {1, 2, 4}) {
    Job job;
    job.ranks = ranks;
    expectAll(run(job), "OK");
  }
}

TEST(CudaFaults, NoGpu) {
  Job job;
  job.ranks = 1;
  job.environment = {{"EMULATED_CUDA_DEVICES", "0"}};
  expectAll(run(job),
            "create UNSUPPORTED: no CUDA device: the driver shows no GPU to "
            "this process (cudaErrorNoDevice); CUDA_VISIBLE_DEVICES may hide "
            "them");
}

TEST(CudaFaults, DriverIsMissingOrOld) {
  Job job;
  job.ranks = 1;
  job.environment = {{"EMULATED_CUDA_DRIVER", "0"}};
  expectAll(run(job), "create UNSUPPORTED: no CUDA device: this machine has no "
                      "NVIDIA driver (cudaErrorInsufficientDriver)");
  job.environment = {{"EMULATED_CUDA_DRIVER", "12040"}};
  expectAll(run(job), "create UNSUPPORTED: no CUDA device: expected a driver "
                      "for CUDA 13.0 or later, but got one for CUDA 12.4 "
                      "(cudaErrorInsufficientDriver)");
}

TEST(CudaFaults, GpuIsTooOld) {
  Job job;
  job.ranks = 1;
  job.environment = {{"EMULATED_CUDA_CAPABILITY", "75"}};
  expectContains(run(job)[0].text,
                 "UNSUPPORTED: expected a GPU of compute capability 8.0 or "
                 "later, but GPU 0 (Emulated CUDA device) has 7.5");
}

TEST(CudaFaults, MemoryIsExhausted) {
  Job job;
  job.ranks = 1;
  job.environment = {{"EMULATED_CUDA_MEMORY", "300000"}};
  std::string text = run(job)[0].text;
  expectContains(text, "alloc RESOURCE_EXHAUSTED: expected 400000 bytes of "
                       "device memory, but ");
  expectContains(text, " of 300000 are free");
}

TEST(CudaFaults, AllocationFailsOnOneRank) {
  Job job;
  // The first one is the device's own, the second one the arena.
  job.fault = "malloc@1:2";
  expectCause(run(job), 1, "bytes of device memory, but ");
}

TEST(CudaFaults, TwoRanksShareAGpu) {
  Job job;
  job.ranks = 3;
  job.sharesGpu = true;
  for (const RankResult &result : run(job))
    expectContains(
        result.text,
        "expected every rank to have its own GPU, but ranks 0 and 1 share one; "
        "NCCL 2.28.9 refuses that unless each of them has its own NCCL_HOSTID");
}

TEST(CudaFaults, RanksOfTwoHostsShareAGpu) {
  for (int ranks : {2, 3}) {
    Job job;
    job.ranks = ranks;
    job.sharesGpu = job.namesHosts = true;
    expectAll(run(job), "OK");
  }
}

TEST(CudaFaults, NcclIsOld) {
  Job job;
  job.environment = {{"EMULATED_NCCL_VERSION", "22707"}};
  for (const RankResult &result : run(job))
    expectContains(result.text,
                   "expected NCCL 2.28.0 or later, but rank 0 has loaded "
                   "2.27.7");
}

TEST(CudaFaults, SharedGpuIsAllowed) {
  Job job;
  job.sharesGpu = true;
  job.environment = {{"EMULATED_NCCL_VERSION", "23003"},
                     {"NCCL_MULTI_RANK_GPU_ENABLE", "1"}};
  expectAll(run(job), "OK");
}

TEST_P(NcclFaults, NcclDoesNotInitialize) {
  Job job;
  job.fault = "nccl_init@1";
  auto results = run(job);
  expectCause(results, 1, "joining a process group: NCCL: ");
  EXPECT_LT(longest(results), 20);
}

TEST_P(NcclFaults, NcclInitializesForever) {
  Job job;
  job.timeout = 1.5;
  job.fault = "nccl_init_stall@1";
  auto results = run(job);
  for (const RankResult &result : results)
    expectContains(result.text,
                   "joining a process group: NCCL was not ready in time");
  EXPECT_LT(longest(results), 20);
}

TEST_P(NcclFaults, PeerIsKilledWhileItJoins) {
  Job job;
  job.ranks = 3;
  job.fault = "nccl_init_exit@1";
  auto results = run(job);
  EXPECT_EQ(results[1].signal, SIGKILL);
  for (size_t rank : {0, 2}) {
    EXPECT_EQ(results[rank].text,
              "load PEER_LOST: rank 1 was lost: its connection closed");
    EXPECT_LT(results[rank].seconds, results[1].seconds + 20);
  }
}

TEST_P(NcclFaults, LaunchFails) {
  Job job;
  job.fault = "nccl_launch@1:2";
  // The call that started it finds the failure, or the watchdog does; they
  // name what they were doing.
  expectCause(run(job), 1, "NCCL: internal error: injected: launch failed");
}

TEST_P(NcclFaults, AsynchronousError) {
  Job job;
  job.ranks = 4;
  job.fault = "nccl_async@2:2";
  auto results = run(job);
  expectContains(results[2].text,
                 "PEER_LOST: the process group of all ranks: ");
  for (size_t rank : {0, 1, 3})
    expectContains(results[rank].text, "rank 2");
  EXPECT_LT(longest(results), 20);
}

TEST_P(NcclFaults, CollectiveStalls) {
  Job job;
  job.ranks = 3;
  job.timeout = 1.5;
  job.fault = "nccl_stall@1:2";
  auto results = run(job);
  int expired = 0;
  for (const RankResult &result : results) {
    EXPECT_FALSE(result.isHung);
    expired +=
        result.text.find("DEADLINE_EXCEEDED: all-reduce 2 (100000 f32 "
                         "as f16) of the process group of all ranks ") == 0;
    expectContains(result.text, "did not end within 1.5 s");
  }
  EXPECT_GE(expired, 1);
  EXPECT_LT(longest(results), 20);
}

TEST_P(NcclFaults, PeerIsKilledInACollective) {
  Job job;
  job.ranks = 3;
  job.fault = "exit@1:2";
  auto results = run(job);
  EXPECT_EQ(results[1].signal, SIGKILL);
  for (size_t rank : {0, 2}) {
    EXPECT_EQ(results[rank].text,
              "PEER_LOST: rank 1 was lost: its connection closed");
    EXPECT_LT(results[rank].seconds, results[1].seconds + 20);
  }
}

/// As for all-reduces; a broadcast's root may be through when others die.
TEST_P(NcclFaults, OtherCollectives) {
  for (const char *kind : {"reduce_scatter", "all_gather", "all_to_all"}) {
    Job job;
    job.kind = kind;
    job.fault = "exit@1:2";
    auto results = run(job);
    EXPECT_EQ(results[1].signal, SIGKILL);
    EXPECT_EQ(results[0].text,
              "PEER_LOST: rank 1 was lost: its connection closed")
        << kind;
  }
  for (const char *kind :
       {"reduce-scatter", "all-gather", "all-to-all", "broadcast"}) {
    Job job;
    job.kind = kind;
    std::replace(job.kind.begin(), job.kind.end(), '-', '_');
    job.timeout = 1.5;
    // The root of a broadcast: the others wait for it.
    job.fault = "nccl_stall@0:2";
    auto results = run(job);
    int expired = 0;
    for (const RankResult &result : results) {
      EXPECT_FALSE(result.isHung);
      expired += result.text.find("DEADLINE_EXCEEDED: " + std::string(kind) +
                                  " 2 (100000 f32) of the process group of "
                                  "all ranks ") == 0;
      expectContains(result.text, "did not end within 1.5 s");
    }
    EXPECT_GE(expired, 1) << kind;
    EXPECT_LT(longest(results), 20);
  }
}

/// Behind the collective that stalls, in the same stream, are those of other
/// groups: NCCL ends no communicator whose work is behind that of one that goes
/// on.
TEST_P(NcclFaults, ACollectiveStallsBeforeThoseOfOtherGroups) {
  for (int stalled : {4, 5, 6}) {
    Job job;
    job.groups = 3;
    job.timeout = 1.5;
    job.fault = "nccl_stall@1:" + std::to_string(stalled);
    auto results = run(job);
    for (const RankResult &result : results) {
      EXPECT_FALSE(result.isHung) << stalled;
      expectContains(result.text, "did not end within 1.5 s");
    }
    EXPECT_LT(longest(results), 20);
  }
}

/// A call returns when another group's collective has ended, which NCCL is told
/// meanwhile: all of the GPU's memory is free in the end.
TEST_P(NcclFaults, ACallWaitsForACollectiveThatStalls) {
  const std::string log = testing::TempDir() + "ddphook_full_queue.log";
  for (int stalled : {4, 5}) {
    Job job;
    job.groups = 3;
    job.timeout = 1.5;
    job.fault = "nccl_stall@1:" + std::to_string(stalled) +
                ",nccl_launch_full@1:" + std::to_string(stalled + 1);
    job.beforeSecond = [&](int rank) {
      if (rank == 1)
        EXPECT_NE(std::freopen(log.c_str(), "w", stderr), nullptr);
    };
    for (const RankResult &result : run(job)) {
      EXPECT_FALSE(result.isHung) << stalled;
      EXPECT_NE(result.text, "OK") << stalled;
    }
    std::ifstream file(log);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    EXPECT_EQ(text.find("is not freed"), std::string::npos) << text;
  }
  std::remove(log.c_str());
}

/// A rank leaves its groups, although another one stays until it has seen that:
/// 80 s would not do for waiting for each of them.
TEST_P(NcclFaults, ARankStaysLonger) {
  struct Seen {
    std::atomic<bool> hasLeft;
    std::atomic<bool> isSeen;
  };
  void *page = mmap(nullptr, sizeof(Seen), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  auto *seen = new (page) Seen();
  Job job;
  job.timeout = 5;
  job.groups = 30;
  job.beforeLeaving = [&](int rank) {
    for (int i = 0; rank == 1 && i < 8000 && !seen->hasLeft; ++i)
      sleepMs(10);
    if (rank == 1)
      seen->isSeen = seen->hasLeft.load();
  };
  job.afterLeaving = [&](int rank) {
    if (rank == 0)
      seen->hasLeft = true;
  };
  expectAll(run(job), "OK");
  EXPECT_TRUE(seen->isSeen);
  munmap(page, sizeof(Seen));
}

TEST_P(NcclFaults, PeerIsLate) {
  Job job;
  job.timeout = 1.5;
  job.beforeSecond = [](int rank) {
    if (rank == 1)
      sleepMs(4000);
  };
  auto results = run(job);
  expectContains(results[0].text, "DEADLINE_EXCEEDED: ");
  expectContains(results[1].text, "ABORTED: rank 0 failed: ");
}

TEST_P(NcclFaults, KernelFails) {
  Job job;
  job.fault = "kernel@1:3";
  auto results = run(job);
  // Whoever looks first says so: the watchdog, the next launch, or NCCL.
  expectContains(results[1].text, "illegal memory access");
  expectContains(results[1].text, "INTERNAL: ");
  expectContains(results[0].text, "ABORTED: rank 1 failed: ");
}
