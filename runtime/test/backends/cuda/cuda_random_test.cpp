// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every job is a process of its own with a rank per thread: callers that change
// streams, capture graphs and keep them, leave and join groups, forget errors,
// while other threads open further devices. Communicators of some are blocking,
// and memory of some is an allocator's. Most jobs have a fault of the device's,
// a rank that is told of a failure, or one that comes too late: then each rank
// has to get a status that names the cause, and to come to its end.
//
// DDPHOOK_TEST_JOBS=FIRST:COUNT runs other jobs than those of ctest; a job that
// fails is named by its seed.

#include "backend/backend_store.h"
#include "backend/backend_test_util.h"
#include "backends/cuda/cuda_random_allocator.h"
#include "backends/cuda/cuda_random_job.h"
#include "backends/cuda/cuda_random_trouble.h"
#include "job/job_test_util.h"
#include "store/store.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

extern "C" const ddphook_backend_t *ddphook_backend_get(void);

using namespace ddphook;
using namespace ddphook::test;
using Kind = RandomStep::Kind;

namespace {

/// What the ranks of a job have in common: their store, and the news of a
/// failure, which comes to the others as the runtime would bring it.
class Common {
public:
  Common(int ranks, const ddphook_allocator_t *allocator)
      : allocator(allocator), devices(static_cast<size_t>(ranks)) {}
  ~Common() {
    for (std::thread &thread : messengers)
      thread.join();
  }

  MemoryStore store;
  /// Of all devices' memory; null: CUDA's own.
  const ddphook_allocator_t *const allocator;

  /// The device of a rank, until it is null.
  void setDevice(int rank, ddphook_device_t *device) {
    std::lock_guard<std::mutex> lock(mutex);
    devices[static_cast<size_t>(rank)] = device;
    if (device && !news.empty())
      ddphook_backend_get()->abort(device, DDPHOOK_ABORTED, news.c_str());
  }
  /// Tells a rank of a loss, from another thread, soon.
  void tell(int rank, const std::string &text, int microseconds) {
    std::lock_guard<std::mutex> lock(mutex);
    messengers.emplace_back([this, rank, text, microseconds] {
      std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
      std::lock_guard<std::mutex> lock(mutex);
      if (ddphook_device_t *device = devices[static_cast<size_t>(rank)])
        ddphook_backend_get()->abort(device, DDPHOOK_PEER_LOST, text.c_str());
    });
  }
  /// A rank has failed: all others are told, once in a job.
  void failed(int rank, const std::string &text) {
    std::lock_guard<std::mutex> lock(mutex);
    if (!news.empty())
      return;
    news = "rank " + std::to_string(rank) + " failed: " + text;
    messengers.emplace_back([this, rank] {
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
      std::lock_guard<std::mutex> lock(mutex);
      store.fail(Status(DDPHOOK_ABORTED, news));
      for (size_t other = 0; other < devices.size(); ++other)
        if (devices[other] && static_cast<int>(other) != rank)
          ddphook_backend_get()->abort(devices[other], DDPHOOK_ABORTED,
                                       news.c_str());
    });
  }

private:
  std::mutex mutex;
  std::vector<ddphook_device_t *> devices;
  std::string news;
  std::vector<std::thread> messengers;
};

/// One rank's way through a job.
class RandomRank {
public:
  RandomRank(const RandomJob &job, const Trouble &trouble, Common &common,
             int index)
      : job(job), trouble(trouble), common(common) {
    rank.index = index;
    rank.backend = ddphook_backend_get();
  }
  /// "OK", the first status that is not, or what is wrong.
  std::string run();

private:
  bool check(ddphook_status_t status);
  bool checkCuda(cudaError_t error, const char *what);
  bool wrong(const std::string &text);
  bool open();
  bool join(int group);
  bool take(const RandomStep &step);
  bool takeCompute(const RandomStep &step);
  bool takeCollective(const RandomStep &step);
  bool takeStream(const RandomStep &step);
  bool takeError();
  bool takeAllocation(const RandomStep &step);
  bool read(const RandomStep &step);
  bool isSettled();
  void close();
  float *array(int number) const {
    return static_cast<float *>(memory[static_cast<size_t>(number)]);
  }
  uint64_t bytes() const {
    return static_cast<uint64_t>(job.count) * sizeof(float);
  }

  const RandomJob &job;
  const Trouble &trouble;
  Common &common;
  Rank rank;
  std::string result = "OK";
  std::vector<void *> memory =
      std::vector<void *>(RandomJob::arrayCount, nullptr);
  std::vector<ddphook_communicator_t *> communicators;
  /// How often each group was joined.
  std::vector<int> joins;
  std::vector<cudaGraphExec_t> graphs;
  cudaStream_t streams[2] = {};
  int stream = 0;
  int64_t ticket = 0;
  bool hasError = false, mayLoseError = false;
};

} // namespace

bool RandomRank::wrong(const std::string &text) {
  if (result == "OK")
    result = "wrong: " + text;
  return false;
}

bool RandomRank::check(ddphook_status_t status) {
  if (status == DDPHOOK_OK)
    return true;
  if (result == "OK") {
    result = rank.show(status);
    common.failed(rank.index, rank.error.message);
  }
  return false;
}

/// A call of the caller's own fails where the device has.
bool RandomRank::checkCuda(cudaError_t error, const char *what) {
  if (error == cudaSuccess)
    return true;
  const std::string text = std::string(what) + ": " + cudaGetErrorName(error);
  // A capture may have been broken by a failure.
  return check(rank.backend->synchronize(rank.device, &rank.error))
             ? wrong(text)
             : false;
}

bool RandomRank::open() {
  ddphook_device_config_t config = {};
  config.struct_size = sizeof(config);
  config.local_rank = rank.index;
  config.transport = "auto";
  config.local_address = "127.0.0.1";
  config.timeout_s = trouble.timeout;
  config.threads = 1;
  config.options = trouble.options;
  config.allocator = common.allocator;
  if (!check(rank.backend->device_create(&config, &rank.device, &rank.error)))
    return false;
  common.setDevice(rank.index, rank.device);
  communicators.resize(job.groups.size());
  joins.resize(job.groups.size());
  graphs.resize(static_cast<size_t>(job.graphs));
  for (cudaStream_t &each : streams)
    if (!checkCuda(cudaStreamCreateWithFlags(&each, cudaStreamNonBlocking),
                   "making a stream"))
      return false;
  for (void *&each : memory)
    if (!check(rank.backend->memory_alloc(rank.device, bytes(), 256, &each,
                                          &rank.error)))
      return false;
  for (int group = 0; group < static_cast<int>(job.groups.size()); ++group)
    if (!join(group))
      return false;
  return true;
}

bool RandomRank::join(int number) {
  const auto group = static_cast<size_t>(number);
  const std::vector<int> &members = job.groups[group];
  const auto place = std::find(members.begin(), members.end(), rank.index);
  if (place == members.end())
    return true;
  const std::string name = "process group 'g" + std::to_string(number) + "'";
  const std::string key =
      "g" + std::to_string(number) + "." + std::to_string(joins[group]++);
  const std::vector<int32_t> ranks(members.begin(), members.end());
  const ddphook_backend_store_t table = toBackendStore(common.store);
  ddphook_communicator_config_t config = {};
  config.struct_size = sizeof(config);
  config.size = static_cast<int32_t>(members.size());
  config.rank = static_cast<int32_t>(place - members.begin());
  config.world_ranks = ranks.data();
  config.name = name.c_str();
  config.one_machine = 1;
  config.max_wire_bytes = bytes();
  config.store = &table;
  config.key = key.c_str();
  return check(rank.backend->communicator_create(
      rank.device, &config, &communicators[group], &rank.error));
}

bool RandomRank::takeCollective(const RandomStep &step) {
  ddphook_collective_t operation = plainSum(job.count, DDPHOOK_F32);
  operation.kind = step.collective;
  operation.root = step.root;
  operation.wire_dtype = step.asHalf ? DDPHOOK_F16 : -1;
  ddphook_communicator_t *group =
      communicators[static_cast<size_t>(step.group)];
  if (step.kind == Kind::Start)
    return check(rank.backend->collective(rank.device, group, &operation,
                                          array(step.a), array(step.b), &ticket,
                                          &rank.error));
  return check(rank.backend->collective(rank.device, group, &operation,
                                        array(step.a), array(step.b),
                                        /*ticket=*/nullptr, &rank.error));
}

bool RandomRank::takeCompute(const RandomStep &step) {
  const ddphook_backend_t &backend = *rank.backend;
  switch (step.kind) {
  case Kind::Write:
    return check(backend.memory_write(
        rank.device, array(step.a),
        step.values[static_cast<size_t>(rank.index)].data(), bytes(),
        &rank.error));
  case Kind::Scale:
    return check(backend.scale(rank.device, 2, array(step.a), array(step.b),
                               job.count, DDPHOOK_F32, &rank.error));
  case Kind::Add:
    return check(backend.add(rank.device, array(step.a), array(step.b),
                             array(step.c), job.count, DDPHOOK_F32,
                             &rank.error));
  case Kind::Wait:
    return check(backend.wait(rank.device, ticket, &rank.error));
  default:
    return takeCollective(step);
  }
}

static void sleepInStream(void *microseconds) {
  std::this_thread::sleep_for(
      std::chrono::microseconds(reinterpret_cast<intptr_t>(microseconds)));
}

/// What concerns the caller's stream.
bool RandomRank::takeStream(const RandomStep &step) {
  const cudaStream_t all[RandomJob::streamCount] = {
      nullptr, streams[0], streams[1], cudaStreamLegacy, cudaStreamPerThread};
  const cudaStream_t current = all[stream];
  cudaGraph_t graph = nullptr;
  switch (step.kind) {
  case Kind::SetStream:
    stream = step.stream;
    mayLoseError = mayLoseError || all[stream] == cudaStreamPerThread;
    return check(
        rank.backend->stream_set(rank.device, all[stream], &rank.error));
  case Kind::Delay:
    if (!current) {
      sleepInStream(reinterpret_cast<void *>(intptr_t{step.microseconds}));
      return true;
    }
    return checkCuda(cudaLaunchHostFunc(
                         current, sleepInStream,
                         reinterpret_cast<void *>(intptr_t{step.microseconds})),
                     "delaying a stream");
  case Kind::BeginCapture:
    return checkCuda(
        cudaStreamBeginCapture(current, cudaStreamCaptureModeThreadLocal),
        "beginning a capture");
  case Kind::EndCapture: {
    if (!checkCuda(cudaStreamEndCapture(current, &graph), "ending a capture"))
      return false;
    const bool isMade =
        checkCuda(cudaGraphInstantiate(&graphs[static_cast<size_t>(step.graph)],
                                       graph, 0),
                  "instantiating");
    return checkCuda(cudaGraphDestroy(graph), "destroying a graph") && isMade;
  }
  case Kind::Replay:
    return checkCuda(
        cudaGraphLaunch(graphs[static_cast<size_t>(step.graph)], current),
        "launching a graph");
  default:
    return checkCuda(cudaGraphExecDestroy(std::exchange(
                         graphs[static_cast<size_t>(step.graph)], nullptr)),
                     "dropping a graph");
  }
}

/// Leaves an error unread, or finds it again.
bool RandomRank::takeError() {
  const cudaError_t expected =
      std::exchange(hasError, !hasError) ? cudaErrorInvalidDevice : cudaSuccess;
  const cudaError_t found = cudaGetLastError();
  if (found != expected && !mayLoseError)
    return checkCuda(cudaErrorUnknown, cudaGetErrorName(found));
  if (hasError)
    (void)cudaSetDevice(9999);
  mayLoseError = stream == 4;
  return true;
}

/// The memory goes back while the device works on it.
bool RandomRank::takeAllocation(const RandomStep &step) {
  void *fresh = nullptr;
  if (!check(rank.backend->memory_alloc(rank.device, bytes(), 256, &fresh,
                                        &rank.error)))
    return false;
  const bool isFine =
      check(rank.backend->scale(rank.device, 2, array(step.a), fresh, job.count,
                                DDPHOOK_F32, &rank.error));
  rank.backend->memory_free(rank.device, fresh, bytes());
  return isFine;
}

bool RandomRank::read(const RandomStep &step) {
  Array got(static_cast<size_t>(job.count), -77);
  if (!check(rank.backend->memory_read(rank.device, got.data(), array(step.a),
                                       bytes(), &rank.error)))
    return false;
  const Array &expected = step.values[static_cast<size_t>(rank.index)];
  for (size_t i = 0; i < got.size(); ++i)
    if (got[i] != expected[i])
      return wrong("element " + std::to_string(i) + " of array " +
                   std::to_string(step.a) + " is " + std::to_string(got[i]) +
                   ", not " + std::to_string(expected[i]));
  return true;
}

bool RandomRank::take(const RandomStep &step) {
  switch (step.kind) {
  case Kind::Read:
    return read(step);
  case Kind::Synchronize:
    return check(rank.backend->synchronize(rank.device, &rank.error));
  case Kind::Error:
    return takeError();
  case Kind::Allocate:
    return takeAllocation(step);
  case Kind::Leave:
    rank.backend->communicator_destroy(
        rank.device,
        std::exchange(communicators[static_cast<size_t>(step.group)], nullptr));
    return join(step.group);
  case Kind::SetStream:
  case Kind::Delay:
  case Kind::BeginCapture:
  case Kind::EndCapture:
  case Kind::Replay:
  case Kind::DropGraph:
    return takeStream(step);
  default:
    return takeCompute(step);
  }
}

/// Whether a later call gives the failure again.
bool RandomRank::isSettled() {
  std::string text =
      rank.show(rank.backend->synchronize(rank.device, &rank.error));
  return result.find("wrong: ") == 0 || text == result || text == "OK" ||
         wrong("first " + result + ", then " + text);
}

void RandomRank::close() {
  const bool keepsGraphs = (trouble.step + rank.index) % 8 == 0;
  auto drop = [&] {
    for (cudaGraphExec_t &graph : graphs)
      if (graph)
        (void)cudaGraphExecDestroy(std::exchange(graph, nullptr));
  };
  if (!keepsGraphs)
    drop();
  for (ddphook_communicator_t *communicator : communicators)
    if (communicator)
      rank.backend->communicator_destroy(rank.device, communicator);
  for (void *each : memory)
    if (each)
      rank.backend->memory_free(rank.device, each, bytes());
  (void)rank.backend->stream_set(rank.device, nullptr, &rank.error);
  common.setDevice(rank.index, nullptr);
  rank.backend->device_destroy(rank.device);
  drop();
  for (cudaStream_t each : streams)
    if (each)
      (void)cudaStreamDestroy(each);
}

std::string RandomRank::run() {
  (void)cudaSetDevice(rank.index);
  bool isFine = open();
  for (size_t i = 0; isFine && i < job.steps.size(); ++i) {
    const RandomStep &step = job.steps[i];
    if (i == trouble.step && trouble.told == rank.index)
      common.tell(rank.index, "rank 9 was lost", trouble.microseconds);
    if (i == trouble.step && trouble.late == rank.index)
      std::this_thread::sleep_for(std::chrono::milliseconds(4000));
    if (step.ranks >> rank.index & 1)
      isFine = take(step);
    int current = -1;
    if (isFine && (cudaGetDevice(&current), current != rank.index))
      isFine = wrong("the current device is " + std::to_string(current));
    if (result.find("wrong: ") == 0)
      result += ", in step " + std::to_string(i);
  }
  if (rank.device) {
    if (isFine)
      check(rank.backend->synchronize(rank.device, &rank.error));
    else
      isSettled();
    close();
  }
  return result;
}

/// Opens devices beside a job's ranks, on their GPUs.
static std::string openBeside(const RandomJob &job, const Trouble &trouble,
                              const ddphook_allocator_t *allocator,
                              std::atomic<bool> &isOver) {
  for (int i = 0; i < 20 && !isOver; ++i) {
    RandomJob alone;
    alone.count = 12;
    alone.groups = {{i % job.ranks}};
    alone.ranks = job.ranks;
    RandomStep write = {Kind::Write, ~0u};
    write.values.assign(static_cast<size_t>(job.ranks), Array(12, 3));
    RandomStep read = {Kind::Read, ~0u};
    read.values.assign(static_cast<size_t>(job.ranks), Array(12, 6));
    alone.steps = {write, {Kind::Scale, ~0u}, read};
    Trouble none;
    none.options = trouble.options;
    Common common(job.ranks, allocator);
    std::string text = RandomRank(alone, none, common, i % job.ranks).run();
    if (text != "OK")
      return text;
  }
  return "OK";
}

/// Runs the job of a seed, and tells what every rank said.
static std::string runJob(uint64_t seed) {
  const RandomJob job = makeRandomJob(seed);
  const Trouble trouble = makeTrouble(seed, job);
  ::setenv("EMULATED_CUDA_FAULT", trouble.fault.c_str(), 1);
  std::vector<std::string> results(static_cast<size_t>(job.ranks));
  std::string beside = "OK";
  RandomAllocator allocator(seed, trouble.failAt);
  const ddphook_allocator_t *lent = trouble.isLent ? allocator.get() : nullptr;
  {
    Common common(job.ranks, lent);
    std::atomic<bool> isOver{false};
    std::vector<std::thread> threads;
    for (int rank = 0; rank < job.ranks; ++rank)
      threads.emplace_back([&, rank] {
        results[static_cast<size_t>(rank)] =
            RandomRank(job, trouble, common, rank).run();
      });
    std::thread another([&] {
      if (seed % 3 == 0)
        beside = openBeside(job, trouble, lent, isOver);
    });
    for (std::thread &thread : threads)
      thread.join();
    isOver = true;
    another.join();
  }
  std::string all =
      trouble.fault + (trouble.isLent ? ", lent, " : ", ") + trouble.options;
  bool isNamed = false, hasFailed = false, isWrong = false;
  for (const std::string &text : results) {
    all += "\n    " + text;
    isNamed = isNamed || text.find(trouble.cause) != std::string::npos;
    hasFailed = hasFailed || text != "OK";
    isWrong = isWrong || text.find("wrong: ") == 0 ||
              (text != "OK" && text.find(trouble.cause) == std::string::npos &&
               text.find(" failed: ") == std::string::npos &&
               text.find("NCCL: ") == std::string::npos);
  }
  if (beside != "OK") {
    all += "\n    beside: " + beside;
    isWrong = isWrong || beside.find(trouble.cause) == std::string::npos;
    // It took the fault.
    isNamed = true;
  }
  if (hasFailed && (!isNamed || trouble.cause.empty()))
    isWrong = true;
  if (std::string text = allocator.complaint(!hasFailed && beside == "OK");
      !text.empty()) {
    all += "\n    " + text;
    isWrong = true;
  }
  return (isWrong ? "wrong: " : "fine: ") + all;
}

/// A number of jobs, and the first one's seed.
static std::pair<uint64_t, int> jobsToRun() {
  const char *text = std::getenv("DDPHOOK_TEST_JOBS");
  uint64_t first = 1;
  int count = 30;
  if (text)
    EXPECT_EQ(std::sscanf(text, "%lu:%d", &first, &count), 2) << text;
  return {first, count};
}

TEST(CudaRandomJobs, EndAsTheModelSays) {
  const auto [first, count] = jobsToRun();
  for (uint64_t seed = first; seed < first + static_cast<uint64_t>(count);
       ++seed) {
    const RankResult result = runRanks(1, [&](int) { return runJob(seed); })[0];
    EXPECT_FALSE(result.isHung) << "seed " << seed;
    EXPECT_EQ(result.text.find("fine: "), 0u)
        << "seed " << seed << ", signal " << result.signal << ": "
        << result.text;
    if (std::getenv("DDPHOOK_TEST_JOBS"))
      std::fprintf(stderr, "seed %lu, %.1f s: %s\n", seed, result.seconds,
                   result.text.c_str());
  }
}

/// An allocator has no memory of a GPU that has failed; that is not the cause.
static std::string allocateAfterAFailure() {
  ::setenv("EMULATED_CUDA_FAULT", "kernel:1", 1);
  RandomAllocator allocator(/*seed=*/1, /*failAt=*/0);
  Rank rank;
  rank.backend = ddphook_backend_get();
  ddphook_device_config_t config = {};
  config.struct_size = sizeof(config);
  config.timeout_s = 300;
  config.allocator = allocator.get();
  std::string text = rank.show(
      rank.backend->device_create(&config, &rank.device, &rank.error));
  void *first = nullptr, *second = nullptr;
  if (text == "OK")
    text = rank.show(
        rank.backend->memory_alloc(rank.device, 64, 256, &first, &rank.error));
  if (text == "OK")
    text = rank.show(rank.backend->scale(rank.device, 2, first, first, 16,
                                         DDPHOOK_F32, &rank.error));
  // The failure has come, and the backend has not heard of it.
  while (text == "OK" && cudaDeviceSynchronize() == cudaSuccess)
    std::this_thread::yield();
  if (text == "OK")
    text = rank.show(
        rank.backend->memory_alloc(rank.device, 64, 256, &second, &rank.error));
  rank.backend->device_destroy(rank.device);
  return text + allocator.complaint(/*isAll=*/true);
}

TEST(CudaRandomJobs, AnAllocatorIsNotBlamedForAFailedGpu) {
  const RankResult result =
      runRanks(1, [](int) { return allocateAfterAFailure(); })[0];
  EXPECT_EQ(result.text.find("INTERNAL: "), 0u) << result.text;
  EXPECT_NE(result.text.find("illegal memory access"), std::string::npos)
      << result.text;
  EXPECT_EQ(result.text.find("allocator: "), std::string::npos) << result.text;
}
