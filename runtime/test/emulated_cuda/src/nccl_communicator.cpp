// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The host transport notices a dead peer; NCCL does not, between the GPUs of a
// machine. So that failure is kept from the caller: the operation waits to be
// aborted.

#include "nccl_communicator.h"

#include "emulated_cuda/nccl_counts.h"
#include "fault.h"
#include "kernels.h"
#include "nccl_bootstrap.h"
#include "race_detector.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <thread>
#include <unistd.h>

using namespace ddphook;
using namespace emulated_cuda;

/// In seconds; nobody lives to see it pass.
static constexpr double forever = 1e7;

namespace {
/// What a recorded collective holds, and each executable graph made of it.
class GraphReference {
public:
  explicit GraphReference(std::shared_ptr<Communicator> communicator)
      : communicator(std::move(communicator)) {
    this->communicator->holdForGraph();
  }
  ~GraphReference() { communicator->dropForGraph(); }
  GraphReference(const GraphReference &) = delete;
  GraphReference &operator=(const GraphReference &) = delete;

private:
  const std::shared_ptr<Communicator> communicator;
};
} // namespace

static std::atomic<int64_t> launchCount{0};
static std::atomic<int64_t> threadCount{0};

NcclCounts emulated_cuda::ncclCounts() { return {launchCount, threadCount}; }

ncclResult_t Communicator::start(std::function<ncclResult_t()> work) {
  ++launchCount;
  if (isBlocking)
    return runHere(work);
  ++threadCount;
  {
    std::lock_guard<std::mutex> lock(mutex);
    result = ncclInProgress;
  }
  std::thread([self = shared_from_this(), work = std::move(work)] {
    // The caller may be capturing: this thread's calls are no part of that.
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    cudaSetDevice(self->device->number);
    ncclResult_t result = work();
    std::lock_guard<std::mutex> lock(self->mutex);
    if (self->result == ncclInProgress)
      self->result = result;
    self->changed.notify_all();
  }).detach();
  return ncclInProgress;
}

/// NCCL allocates whatever the caller captures, and leaves its device alone.
ncclResult_t Communicator::runHere(const std::function<ncclResult_t()> &work) {
  const auto self = shared_from_this();
  {
    std::lock_guard<std::mutex> lock(mutex);
    ++callerCount;
  }
  int callersDevice = 0;
  cudaGetDevice(&callersDevice);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);
  cudaSetDevice(device->number);
  const ncclResult_t result = work();
  cudaSetDevice(callersDevice);
  cudaThreadExchangeStreamCaptureMode(&mode);
  std::lock_guard<std::mutex> lock(mutex);
  --callerCount;
  return result;
}

ncclResult_t Communicator::state() {
  std::lock_guard<std::mutex> lock(mutex);
  return result;
}

ncclResult_t Communicator::notReady() {
  ncclResult_t now = state();
  if (now == ncclInProgress)
    return recordNccl(ncclInvalidArgument,
                      "the communicator's previous operation has not ended");
  if (isAborted)
    return recordNccl(ncclInvalidUsage, "the communicator was aborted");
  return now;
}

void Communicator::fail(ncclResult_t failure) {
  std::lock_guard<std::mutex> lock(mutex);
  result = failure;
  changed.notify_all();
}

void Communicator::stall() {
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait(lock, [&] { return isAborted.load(); });
}

/// What NCCL answers for the kinds of failure that a transport has.
static ncclResult_t toNccl(const Status &status) {
  switch (status.code()) {
  case DDPHOOK_OK:
    return ncclSuccess;
  case DDPHOOK_INVALID_ARGUMENT:
    return ncclInvalidArgument;
  case DDPHOOK_PEER_LOST:
    return ncclRemoteError;
  case DDPHOOK_IO_ERROR:
  case DDPHOOK_RESOURCE_EXHAUSTED:
    return ncclSystemError;
  default:
    return ncclInternalError;
  }
}

ncclResult_t Communicator::join(const ncclUniqueId &id) {
  if (isFaultDue("nccl_init"))
    return recordNccl(ncclSystemError, "injected: initialization failed");
  if (isFaultDue("nccl_init_exit"))
    kill(getpid(), SIGKILL);
  if (isFaultDue("nccl_init_stall"))
    stall();
  Status status = exchange(id);
  if (status.isOk())
    return ncclSuccess;
  return recordNccl(isDuplicate ? ncclInvalidUsage : toNccl(status),
                    status.message());
}

namespace {
/// Ranks of this process that have not left, by their communicator's id.
struct LocalRanks {
  std::mutex mutex;
  std::map<std::string, int> counts;
};
} // namespace

static LocalRanks &localRanks() {
  static auto *ranks = new LocalRanks();
  return *ranks;
}

Status Communicator::exchange(const ncclUniqueId &id) {
  std::unique_ptr<Bootstrap> bootstrap;
  DDPHOOK_TRY(Bootstrap::connect(id, rank, isAborted, &bootstrap));
  if (Status gpus = checkGpus(*bootstrap); !gpus.isOk()) {
    // All ranks find the same, and none leaves before the others have read it.
    if (isDuplicate)
      (void)bootstrap->finish(size);
    return gpus;
  }
  if (size > 1) {
    std::unique_ptr<host::ShmGroup> made, madeForCalls, madeForEnd;
    DDPHOOK_TRY(host::ShmGroup::create(*bootstrap, "group", {rank, size},
                                       forever, &made, &isAborted));
    if (isBlocking)
      DDPHOOK_TRY(host::ShmGroup::create(*bootstrap, "connection", {rank, size},
                                         forever, &madeForCalls, &isAborted));
    DDPHOOK_TRY(host::ShmGroup::create(*bootstrap, "departure", {rank, size},
                                       forever, &madeForEnd, &isAborted));
    std::lock_guard<std::mutex> lock(mutex);
    group = std::move(made);
    connection = std::move(madeForCalls);
    departure = std::move(madeForEnd);
    key.assign(id.internal, sizeof(id.internal));
    std::lock_guard<std::mutex> localLock(localRanks().mutex);
    ++localRanks().counts[key];
    if (isAborted)
      abortGroups();
  }
  return bootstrap->finish(size);
}

/// All ranks look at all GPUs, so that all give the same answer.
Status Communicator::checkGpus(Store &store) {
  const char *hostId = std::getenv("NCCL_HOSTID");
  const char *isAllowed = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  std::string gpu(device->uuid.bytes, sizeof(device->uuid.bytes));
  gpu += hostId ? hostId : "";
  DDPHOOK_TRY(store.set("gpu" + std::to_string(rank), gpu));
  std::map<std::string, int> first;
  for (int other = 0; other < size; ++other) {
    std::string theirs;
    DDPHOOK_TRY(store.get("gpu" + std::to_string(other),
                          Deadline::after(forever), &theirs));
    auto [entry, isNew] = first.emplace(theirs, other);
    if (isNew || (isAllowed && std::strcmp(isAllowed, "1") == 0))
      continue;
    isDuplicate = true;
    return error(DDPHOOK_INVALID_ARGUMENT,
                 "duplicate GPU detected: rank %d and rank %d", entry->second,
                 other);
  }
  return Status::ok();
}

/// Returns when all ranks have called it.
static Status meet(host::ShmGroup &ranks) {
  host::CollectiveDesc desc;
  desc.count = 1;
  float word = 0;
  return ranks.run(desc, &word, &word);
}

/// NCCL connects ranks when they first need it, and has no rule that says when
/// a call is free of that. False where the communicator is aborted meanwhile,
/// which a peer's death does not bring about.
bool Communicator::meetPeers() {
  race_detector::Hide hide;
  std::shared_ptr<host::ShmGroup> others;
  {
    std::lock_guard<std::mutex> lock(mutex);
    others = connection;
  }
  if (others && !meet(*others).isOk())
    stall();
  return !isAborted;
}

ncclResult_t Communicator::submit(const Collective &operation) {
  if (isFaultDue("nccl_launch"))
    return recordNccl(ncclInternalError, "injected: launch failed");
  // A queue of launches that is full has room when the device goes on.
  if (isFaultDue("nccl_launch_full"))
    waitForDevice(device);
  if (isBlocking && !meetPeers())
    return recordNccl(ncclInternalError, "aborted while waiting for peers");
  // A communicator's collectives run one after the other, in whatever streams.
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaStreamIsCapturing(operation.stream, &status);
  const bool isCaptured = status != cudaStreamCaptureStatusNone;
  if (operation.stream != lastStream && lastCollective.queue && !isCaptured)
    emulated_cuda::submit(operation.stream,
                          [last = lastCollective] { last.wait(); });
  auto reference = isCaptured
                       ? std::make_shared<GraphReference>(shared_from_this())
                       : nullptr;
  Mark mark;
  cudaError_t error = emulated_cuda::submit(
      operation.stream,
      [self = shared_from_this(), reference, operation] {
        self->run(operation);
      },
      &mark);
  if (error)
    return recordNccl(ncclUnhandledCudaError, cudaGetErrorString(error));
  if (mark.queue) {
    lastCollective = mark;
    lastStream = operation.stream;
  }
  return ncclSuccess;
}

/// Returns the order in which the ranks' elements of one section of an array
/// are added. NCCL's depends on the call, but on nothing else, and is not the
/// host's: it is drawn from EMULATED_NCCL_ORDER, so that nobody can rely on it.
static std::vector<int> orderOf(const host::CollectiveDesc &desc,
                                int64_t section, int size) {
  static const char *const text = std::getenv("EMULATED_NCCL_ORDER");
  static const int seed = text ? std::atoi(text) : 1;
  std::seed_seq call{int64_t{seed}, int64_t{desc.kind}, int64_t{desc.dtype},
                     desc.count, section};
  std::mt19937 random(call);
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::shuffle(ranks.begin(), ranks.end(), random);
  return ranks;
}

/// Adds what all ranks have to the whole array, or to this rank's part of it.
Status Communicator::sum(host::ShmGroup &group, const Collective &operation) {
  constexpr int64_t sectionLength = 1021;
  const host::CollectiveDesc &desc = operation.desc;
  const Dtype type = desc.type();
  host::CollectiveDesc gather(desc.count * size, type);
  gather.kind = DDPHOOK_ALL_GATHER;
  std::vector<char> all(static_cast<size_t>(gather.memoryBytes()));
  DDPHOOK_TRY(group.run(gather, operation.in, all.data()));
  const bool isScatter = desc.is(CollectiveKind::ReduceScatter);
  const int64_t begin = isScatter ? desc.count / size * rank : 0;
  const int64_t end = isScatter ? begin + desc.count / size : desc.count;
  for (int64_t i = begin; i < end;) {
    const int64_t section = i / sectionLength;
    const int64_t stop = std::min(end, (section + 1) * sectionLength);
    auto at = [&](int each) {
      return all.data() + desc.bytesOf(desc.count * each + i);
    };
    const std::vector<int> order = orderOf(desc, section, size);
    for (int each : order)
      if (each != order.front())
        host::addArrays(at(order.front()), at(order.front()), at(each), type,
                        stop - i);
    std::memcpy(static_cast<char *>(operation.out) + desc.bytesOf(i - begin),
                at(order.front()), static_cast<size_t>(desc.bytesOf(stop - i)));
    i = stop;
  }
  return Status::ok();
}

/// `group` is null in a communicator of one rank.
Status Communicator::move(host::ShmGroup *group, const Collective &operation) {
  const host::CollectiveDesc &desc = operation.desc;
  const auto bytes = static_cast<size_t>(desc.memoryBytes());
  if (desc.is(CollectiveKind::AllToAll)) {
    const size_t part = bytes / static_cast<size_t>(size);
    std::vector<char> in(bytes), out(bytes);
    for (size_t rank = 0; rank < operation.sends.size(); ++rank)
      std::memcpy(in.data() + rank * part, operation.sends[rank], part);
    if (group)
      DDPHOOK_TRY(group->run(desc, in.data(), out.data()));
    else
      out = in;
    for (size_t rank = 0; rank < operation.receives.size(); ++rank)
      std::memcpy(operation.receives[rank], out.data() + rank * part, part);
    return Status::ok();
  }
  if (!group) {
    if (operation.in != operation.out && bytes > 0)
      std::memcpy(operation.out, operation.in, bytes);
    return Status::ok();
  }
  // Two numbers have one sum.
  if (size > 2 && (desc.is(CollectiveKind::AllReduce) ||
                   desc.is(CollectiveKind::ReduceScatter)))
    return sum(*group, operation);
  // In place a rank's part lies in the array that NCCL works on.
  if (desc.is(CollectiveKind::ReduceScatter)) {
    const size_t part = bytes / static_cast<size_t>(size);
    std::vector<char> out(part);
    DDPHOOK_TRY(group->run(desc, operation.in, out.data()));
    std::memcpy(operation.out, out.data(), part);
    return Status::ok();
  }
  if (desc.is(CollectiveKind::AllGather)) {
    const size_t part = bytes / static_cast<size_t>(size);
    const char *own = static_cast<const char *>(operation.in);
    const std::vector<char> in(own, own + part);
    return group->run(desc, in.data(), operation.out);
  }
  return group->run(desc, operation.in, operation.out);
}

void Communicator::run(const Collective &operation) {
  // What is told here orders the stream with nobody: NCCL's kernels do not
  // either.
  std::shared_ptr<host::ShmGroup> current;
  {
    race_detector::Hide hide;
    std::lock_guard<std::mutex> lock(mutex);
    if (isAborted)
      return;
    ++runningCount;
    current = group;
  }
  if (isFaultDue("exit"))
    kill(getpid(), SIGKILL);
  if (isFaultDue("nccl_async")) {
    fail(ncclRemoteError);
    stall();
  } else if (isFaultDue("nccl_stall")) {
    stall();
  } else if (operation.desc.count > 0 &&
             !move(current.get(), operation).isOk()) {
    stall();
  }
  if (isFaultDue("nccl_corrupt") && operation.desc.count > 0)
    *static_cast<char *>(operation.receives.empty()
                             ? operation.out
                             : operation.receives.front()) ^= 0x55;
  race_detector::Hide hide;
  std::lock_guard<std::mutex> lock(mutex);
  --runningCount;
  changed.notify_all();
}

void Communicator::holdForGraph() {
  race_detector::Hide hide;
  std::lock_guard<std::mutex> lock(mutex);
  ++graphCount;
}

void Communicator::dropForGraph() {
  race_detector::Hide hide;
  std::lock_guard<std::mutex> lock(mutex);
  --graphCount;
  changed.notify_all();
}

/// NCCL waits for its streams and for graphs, and then frees memory, which
/// waits for whatever else the device is doing.
void Communicator::waitUntilUnused() {
  waitForDevice(device);
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait(lock, [&] { return graphCount == 0; });
}

ncclResult_t Communicator::finalize() {
  waitUntilUnused();
  return ncclSuccess;
}

bool Communicator::isLastOfProcess() {
  std::lock_guard<std::mutex> lock(localRanks().mutex);
  auto found = localRanks().counts.find(key);
  if (--found->second > 0)
    return false;
  localRanks().counts.erase(found);
  return true;
}

void Communicator::destroy() {
  refuseCallers();
  waitUntilUnused();
  std::shared_ptr<host::ShmGroup> others;
  {
    std::lock_guard<std::mutex> lock(mutex);
    others = departure;
  }
  if (!others)
    return;
  auto depart = [self = shared_from_this(), others] {
    // It fails where another rank has died or aborts: nobody waits for those.
    meet(*others).ignore();
  };
  if (isLastOfProcess())
    depart();
  else
    std::thread(depart).detach();
}

void Communicator::requestAbort() {
  std::lock_guard<std::mutex> lock(mutex);
  isAborted = true;
  if (departure)
    isLastOfProcess();
  abortGroups();
  changed.notify_all();
}

void Communicator::waitForJob() {
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait(lock, [&] { return result != ncclInProgress; });
}

void Communicator::abortGroups() {
  for (const auto &each : {group, connection, departure})
    if (each)
      each->abort();
}

/// To free a communicator NCCL joins its own threads, and knows nothing of
/// others.
void Communicator::refuseCallers() {
  std::lock_guard<std::mutex> lock(mutex);
  if (callerCount == 0)
    return;
  std::fprintf(stderr, "emulated NCCL: a communicator is freed during a call "
                       "of another thread\n");
  std::abort();
}

void Communicator::finishAbort() {
  refuseCallers();
  {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock,
                 [&] { return runningCount == 0 && result != ncclInProgress; });
  }
  waitUntilUnused();
}
