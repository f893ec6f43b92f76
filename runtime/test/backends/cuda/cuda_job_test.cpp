// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Two ranks as processes that share one GPU, as ranks of two machines, through
// the C ABI. They run steps on a stream of their own, eagerly and in graphs,
// until one of them is killed, stops, or leaves: the other one gets a status
// within the deadline, and can leave. Linked with the backend, to share its
// CUDA runtime: the emulated one, or a toolkit's.

#include "cuda_job_test_util.h"

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace ddphook;
using namespace ddphook::test;

namespace {

constexpr int64_t kCount = 10000;
constexpr bool isReal = std::string_view(DDPHOOK_TEST_CUDA_BACKEND) == "cuda";
/// A deadline that passes, but not while ranks find each other.
constexpr double kShort = isReal ? 5 : 3;

#define REQUIRE_OK(call)                                                       \
  do {                                                                         \
    if (std::string text = (call); text != "OK")                               \
      return text;                                                             \
  } while (false)

std::string show(cudaError_t error, const char *what) {
  return error == cudaSuccess
             ? "OK"
             : std::string(what) + ": " + cudaGetErrorName(error);
}
#define REQUIRE_CUDA(call) REQUIRE_OK(show(call, #call))

struct Job {
  bool isBlocking = false;
  double timeout = patientDeadline;
  int groups = 1;
  /// The rank that stops itself.
  int stoppedRank = -1;
  /// Called by a rank that has left.
  std::function<void(int)> afterLeaving = {};
};

/// A rank with a stream, of whose steps it may have a graph.
class StreamRank {
public:
  StreamRank(int rank, const Job &job) : rank(rank), groups(job.groups) {}
  ~StreamRank() { dropGraph(); }

  std::string open(ddphook_context_t *ofJob, TestModule &ofSteps) {
    context = ofJob;
    module = &ofSteps;
    REQUIRE_CUDA(cudaSetDevice(0));
    REQUIRE_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    // They stay: to free them would wait for the GPU.
    REQUIRE_CUDA(cudaMalloc(&in, kBytes));
    REQUIRE_CUDA(cudaMalloc(&out, kBytes));
    REQUIRE_OK(test::show(ddphook_context_set_stream(context, stream)));
    // NCCL connects, which a capture should not.
    return stepAndWait(1);
  }

  std::string step() { return deviceStep(*module, groups, in, out); }
  std::string synchronize() { return test::show(ddphook_synchronize(context)); }

  /// A step whose result is looked at: every rank gives its multiple of
  /// `value`, and gets their mean.
  std::string stepAndWait(float value) {
    REQUIRE_OK(give(value));
    REQUIRE_OK(step());
    return expectMean(value);
  }
  std::string launchAndWait(float value) {
    REQUIRE_OK(give(value));
    REQUIRE_OK(launch());
    return expectMean(value);
  }

  /// Makes a graph of a step; `during` is called in the middle of the capture.
  std::string capture(cudaStreamCaptureMode mode,
                      const std::function<void()> &during = {}) {
    REQUIRE_CUDA(cudaStreamBeginCapture(stream, mode));
    if (during)
      during();
    const std::string text = step();
    cudaGraph_t graph = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
    if (text != "OK") {
      (void)cudaGetLastError();
      return text;
    }
    REQUIRE_CUDA(ended);
    REQUIRE_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    return show(cudaGraphDestroy(graph), "destroying a graph");
  }
  std::string launch() {
    return show(cudaGraphLaunch(executable, stream), "launching a graph");
  }
  void dropGraph() {
    if (executable)
      (void)cudaGraphExecDestroy(std::exchange(executable, nullptr));
  }

  const int rank;

private:
  std::string give(float value) {
    std::vector<float> values(kCount, value * static_cast<float>(rank + 1));
    REQUIRE_CUDA(cudaMemcpyAsync(in, values.data(), kBytes,
                                 cudaMemcpyHostToDevice, stream));
    return show(cudaStreamSynchronize(stream), "giving values");
  }
  std::string expectMean(float value) {
    REQUIRE_OK(synchronize());
    REQUIRE_CUDA(cudaGetLastError());
    std::vector<float> values(kCount);
    REQUIRE_CUDA(cudaMemcpyAsync(values.data(), out, kBytes,
                                 cudaMemcpyDeviceToHost, stream));
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    for (float got : values)
      if (got != value * 1.5f)
        return "expected " + std::to_string(value * 1.5f) + ", but got " +
               std::to_string(got);
    return "OK";
  }

  static constexpr size_t kBytes = kCount * sizeof(float);
  const int groups;
  ddphook_context_t *context = nullptr;
  TestModule *module = nullptr;
  cudaStream_t stream = nullptr;
  cudaGraphExec_t executable = nullptr;
  void *in = nullptr, *out = nullptr;
};

/// Ranks on one GPU that NCCL takes for those of two machines.
void setUpProcess(int rank) {
  ::setenv("RANK", std::to_string(rank).c_str(), 1);
  ::setenv("NCCL_HOSTID", ("host " + std::to_string(rank)).c_str(), 1);
  ::setenv("NCCL_SOCKET_IFNAME", "lo", 0);
}

ddphook_options_t optionsOf(const Job &job, int rank, int port) {
  ddphook_options_t options = jobOptions(rank, 2, port, "auto", job.timeout);
  options.backend = "program";
  options.backend_options =
      job.isBlocking ? "device=0,blocking=1" : "device=0,blocking=0";
  return options;
}

std::unique_ptr<TestModule> moduleOf(const Job &job) {
  return deviceModule(/*ranks=*/2, job.groups, {kCount, "f32", "f16", true});
}

using Body = std::function<std::string(StreamRank &)>;

/// What a rank's process writes to its standard error.
class Log {
public:
  Log() : file(::memfd_create("log", 0)) { ::dup2(file, STDERR_FILENO); }
  std::string read() const {
    // As much as a pipe takes with room to spare.
    std::string text(16384, '\0');
    const ssize_t size = ::pread(file, text.data(), text.size(), 0);
    text.resize(static_cast<size_t>(std::max<ssize_t>(size, 0)));
    return text;
  }

private:
  const int file;
};

/// What `body` returns, and what is in the log behind it.
std::vector<RankResult> run(const Job &job, const Body &body) {
  const int port = freePort();
  auto runRank = [&](int rank) {
    Log log;
    setUpProcess(rank);
    StreamRank self(rank, job);
    const std::unique_ptr<TestModule> module = moduleOf(job);
    std::string text = withModule(optionsOf(job, rank, port), *module,
                                  [&](ddphook_context_t *context) {
                                    REQUIRE_OK(self.open(context, *module));
                                    return body(self);
                                  });
    if (job.afterLeaving)
      job.afterLeaving(rank);
    return text + "\n" + log.read();
  };
  return runRanks(2, runRank, patientDeadline + 100, job.stoppedRank);
}

/// When something happens to rank 1.
enum class Moment { Eager, Capture, Replay };

/// Steps until `happen` is called by rank 1; what rank 0 is told after that.
Body until(Moment moment, const std::function<void()> &happen) {
  return [=](StreamRank &self) -> std::string {
    auto here = [&] {
      if (self.rank == 1)
        happen();
    };
    if (moment == Moment::Eager) {
      here();
      REQUIRE_OK(self.step());
      return self.synchronize();
    }
    const bool isDuringCapture = moment == Moment::Capture;
    REQUIRE_OK(
        self.capture(cudaStreamCaptureModeThreadLocal,
                     isDuringCapture ? std::function<void()>(here) : nullptr));
    if (!isDuringCapture) {
      REQUIRE_OK(self.launchAndWait(2));
      here();
    }
    REQUIRE_OK(self.launch());
    return self.synchronize();
  };
}

/// The first line: what a rank was told.
std::string toldTo(const RankResult &result) {
  return result.isHung ? "hung" : result.text.substr(0, result.text.find('\n'));
}

/// Why a real GPU does not wait for the deadlines of both kinds.
constexpr char timeIsShort[] = "GPUs are lent for minutes";

/// Whether communicators are blocking, and when it happens.
using Case = std::pair<bool, Moment>;

std::vector<Case> casesOf(bool isForReal) {
  std::vector<Case> cases = {{false, Moment::Eager},
                             {false, Moment::Capture},
                             {false, Moment::Replay},
                             {true, Moment::Eager}};
  if (!isForReal)
    cases.insert(cases.end(),
                 {{true, Moment::Capture}, {true, Moment::Replay}});
  return cases;
}

std::string nameOf(const Case &value) {
  static const char *const moments[] = {"Eager", "Capture", "Replay"};
  return std::string(value.first ? "Blocking" : "NonBlocking") +
         moments[static_cast<int>(value.second)];
}

/// Why there is no GPU; a process that forks ranks must not use CUDA itself.
std::string whyNoGpu() {
  auto look = [](int) -> std::string {
    int count = 0;
    REQUIRE_CUDA(cudaGetDeviceCount(&count));
    return count > 0 ? "OK" : "no device";
  };
  static const std::string text = runRanks(1, look)[0].text;
  return text == "OK" ? "" : text;
}

void skipWithoutGpu() {
  const std::string reason = whyNoGpu();
  if (reason.empty())
    return;
  const char *required = std::getenv("DDPHOOK_REQUIRE_GPU");
  ASSERT_TRUE(isReal && !(required && std::strcmp(required, "1") == 0))
      << reason;
  // ctest knows the words.
  GTEST_SKIP() << "no GPU to run on: " << reason;
}

class CudaJobFailures : public testing::TestWithParam<Case> {
protected:
  void SetUp() override { skipWithoutGpu(); }
  Job job() const {
    Job job;
    job.isBlocking = GetParam().first;
    return job;
  }
  Moment moment() const { return GetParam().second; }
};
INSTANTIATE_TEST_SUITE_P(, CudaJobFailures, testing::ValuesIn(casesOf(isReal)),
                         [](const auto &info) { return nameOf(info.param); });

class CudaJobs : public testing::TestWithParam<bool> {
protected:
  void SetUp() override { skipWithoutGpu(); }
  Job job() const {
    Job job;
    job.isBlocking = GetParam();
    return job;
  }
};
INSTANTIATE_TEST_SUITE_P(, CudaJobs, testing::Bool(), [](const auto &info) {
  return info.param ? "Blocking" : "NonBlocking";
});

/// What ranks tell each other beside the job.
struct Seen {
  std::atomic<bool> hasLeft;
  std::atomic<bool> isSeen;
};

class SharedSeen {
public:
  SharedSeen() {
    void *page = mmap(nullptr, sizeof(Seen), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
      std::abort();
    seen = new (page) Seen();
  }
  ~SharedSeen() { munmap(seen, sizeof(Seen)); }
  SharedSeen(const SharedSeen &) = delete;
  SharedSeen &operator=(const SharedSeen &) = delete;
  Seen *operator->() const { return seen; }

private:
  Seen *seen;
};

} // namespace

TEST_P(CudaJobs, CapturedSteps) {
  for (cudaStreamCaptureMode mode :
       {cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeGlobal}) {
    Job two = job();
    two.groups = 2;
    auto results = run(two, [mode](StreamRank &self) -> std::string {
      REQUIRE_OK(self.capture(mode));
      for (int round = 1; round <= 4; ++round)
        REQUIRE_OK(self.launchAndWait(static_cast<float>(round)));
      REQUIRE_OK(self.stepAndWait(7));
      self.dropGraph();
      return "OK";
    });
    for (const RankResult &result : results)
      EXPECT_EQ(toldTo(result), "OK");
  }
}

TEST_P(CudaJobFailures, PeerIsKilled) {
  auto results =
      run(job(), until(moment(), [] { ::kill(::getpid(), SIGKILL); }));
  EXPECT_EQ(results[1].signal, SIGKILL);
  const std::string told = toldTo(results[0]);
  // Between machines NCCL notices it as well.
  if (isReal)
    EXPECT_TRUE(told != "OK" && told != "hung") << told;
  else
    EXPECT_EQ(told, "PEER_LOST: rank 1 was lost: its connection closed");
  EXPECT_LT(results[0].seconds, farDeadline);
}

TEST_P(CudaJobFailures, PeerStops) {
  if (isReal && moment() == Moment::Capture)
    GTEST_SKIP()
        << "its deadline passes in a graph's launch, as that of Replay";
  Job late = job();
  late.timeout = kShort;
  late.stoppedRank = 1;
  auto results = run(late, until(moment(), [] { ::raise(SIGSTOP); }));
  EXPECT_EQ(toldTo(results[0]).find("DEADLINE_EXCEEDED: "), 0u)
      << toldTo(results[0]);
  EXPECT_LT(results[0].seconds, farDeadline);
}

/// In the communication stream other groups' collectives are behind the one
/// that hangs.
TEST_P(CudaJobs, PeerStopsBeforeCollectivesOfSeveralGroups) {
  if (isReal && GetParam())
    GTEST_SKIP() << timeIsShort;
  Job late = job();
  late.timeout = kShort;
  late.stoppedRank = 1;
  late.groups = 3;
  auto results = run(late, until(Moment::Eager, [] { ::raise(SIGSTOP); }));
  EXPECT_EQ(toldTo(results[0]).find("DEADLINE_EXCEEDED: "), 0u)
      << toldTo(results[0]);
  EXPECT_LT(results[0].seconds, farDeadline);
}

TEST_P(CudaJobs, LeavingWithAGraphWhileThePeerStays) {
  if (isReal && GetParam())
    GTEST_SKIP() << timeIsShort;
  SharedSeen seen;
  Job leaving = job();
  leaving.timeout = kShort;
  leaving.afterLeaving = [&](int rank) {
    if (rank == 0)
      seen->hasLeft = true;
  };
  auto results = run(leaving, [&](StreamRank &self) -> std::string {
    REQUIRE_OK(self.capture(cudaStreamCaptureModeGlobal));
    REQUIRE_OK(self.launchAndWait(3));
    if (self.rank == 0)
      return "OK";
    self.dropGraph();
    for (int i = 0; i < 6000 && !seen->hasLeft; ++i)
      sleepMs(10);
    seen->isSeen = seen->hasLeft.load();
    return "OK";
  });
  for (const RankResult &result : results)
    EXPECT_EQ(toldTo(result), "OK");
  EXPECT_TRUE(seen->isSeen);
  expectContains(
      results[0].text,
      "NCCL has not finished, and continues in the background; expected CUDA "
      "graphs with collectives to be destroyed before");
}

TEST_P(CudaJobs, LeavingWhileThePeerIsStopped) {
  if (isReal && GetParam())
    GTEST_SKIP() << timeIsShort;
  for (bool hasGraph : {false, true}) {
    Job leaving = job();
    leaving.timeout = kShort;
    leaving.stoppedRank = 1;
    auto results = run(leaving, [&](StreamRank &self) -> std::string {
      if (hasGraph) {
        REQUIRE_OK(self.capture(cudaStreamCaptureModeThreadLocal));
        REQUIRE_OK(self.launchAndWait(3));
      }
      if (self.rank == 1)
        ::raise(SIGSTOP);
      return "OK";
    });
    EXPECT_EQ(toldTo(results[0]), "OK");
    // NCCL waits for ranks of the same machine alone.
    if (hasGraph || !isReal)
      expectContains(
          results[0].text,
          std::string(
              "NCCL has not finished, and continues in the background; ") +
              (hasGraph ? "expected CUDA graphs" : "other ranks"));
    EXPECT_LT(results[0].seconds, farDeadline);
  }
}

/// Runs `body` in two jobs that each process is in.
static std::vector<RankResult> runTwoJobs(
    const Job &job,
    const std::function<std::string(StreamRank &, StreamRank &)> &inBoth) {
  const int ports[] = {freePort(), freePort()};
  return runRanks(2, [&](int rank) -> std::string {
    setUpProcess(rank);
    StreamRank first(rank, job), second(rank, job);
    const std::unique_ptr<TestModule> modules[] = {moduleOf(job),
                                                   moduleOf(job)};
    auto inner = [&](ddphook_context_t *context) -> std::string {
      REQUIRE_OK(second.open(context, *modules[1]));
      return inBoth(first, second);
    };
    auto outer = [&](ddphook_context_t *context) -> std::string {
      REQUIRE_OK(first.open(context, *modules[0]));
      REQUIRE_OK(
          withModule(optionsOf(job, rank, ports[1]), *modules[1], inner));
      return first.stepAndWait(9);
    };
    return withModule(optionsOf(job, rank, ports[0]), *modules[0], outer);
  });
}

TEST_P(CudaJobs, TwoContextsInOneProcess) {
  auto results = runTwoJobs(
      job(), [](StreamRank &first, StreamRank &second) -> std::string {
        for (StreamRank *each : {&first, &second, &first})
          REQUIRE_OK(each->stepAndWait(5));
        return "OK";
      });
  for (const RankResult &result : results)
    EXPECT_EQ(toldTo(result), "OK");
}

/// What NCCL aborts is the job that fails, and none beside it.
TEST_P(CudaJobs, AContextFailsBesideAnother) {
  Job late = job();
  late.timeout = kShort;
  auto results = runTwoJobs(
      late, [](StreamRank &first, StreamRank &second) -> std::string {
        std::string text = second.rank == 0 ? second.step() : "OK";
        for (int i = 0; i < 6000 && text == "OK"; ++i) {
          text = second.synchronize();
          sleepMs(5);
        }
        const bool isTold =
            text.find(second.rank == 0 ? "DEADLINE_EXCEEDED: "
                                       : "ABORTED: rank 0 failed: ") == 0;
        return isTold ? first.stepAndWait(7) : "not told: " + text;
      });
  for (const RankResult &result : results)
    EXPECT_EQ(toldTo(result), "OK");
}
