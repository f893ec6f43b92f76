// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A call of a non-blocking communicator may return ncclInProgress; until it is
// complete, NCCL permits nothing except to query the communicator's state or to
// abort it. The same holds for a blocking one while a thread is in a call.

#include "nccl_communicator.h"

#include "base/log.h"
#include "cuda_error.h"
#include "detached_call.h"

#include <utility>

using namespace ddphook;
using namespace ddphook::cuda;

static bool isFailure(ncclResult_t result) {
  return result != ncclSuccess && result != ncclInProgress;
}

static ncclDataType_t ncclTypeOf(Dtype dtype) {
  switch (dtype) {
  case Dtype::F16:
    return ncclFloat16;
  case Dtype::BF16:
    return ncclBfloat16;
  case Dtype::F32:
    return ncclFloat32;
  case Dtype::F64:
    return ncclFloat64;
  }
  return ncclNumTypes;
}

/// Returns a token of which there may be copies; the future is ready when the
/// last one is gone.
static std::shared_ptr<void> makeToken(std::future<void> *future) {
  auto promise = std::make_unique<std::promise<void>>();
  *future = promise->get_future();
  return {promise.release(), [](std::promise<void> *last) {
            last->set_value();
            delete last;
          }};
}

NcclAbort cuda::abortTogether(const std::vector<NcclHandle> &handles,
                              int device) {
  NcclAbort abort;
  auto requested = makeToken(&abort.requested);
  auto ended = makeToken(&abort.ended);
  for (const NcclHandle &handle : handles)
    callDetached("ddphook-abort", [handle, device, requested, ended]() mutable {
      enterDevice(device);
      (void)ncclGroupStart();
      (void)ncclCommAbort(handle.communicator);
      requested.reset();
      // Ending the group frees the communicator.
      handle.calls->waitForNone();
      (void)ncclGroupEnd();
    });
  return abort;
}

void cuda::logUnended(const std::string &what, bool isCaptured) {
  ignoreExceptions([&] {
    log(LogLevel::Warn,
        what + ": NCCL has not finished, and continues in the background; " +
            (isCaptured ? "expected CUDA graphs with collectives to be "
                          "destroyed before"
                        : "other ranks may not have left, or the GPU may be "
                          "busy with other work"));
  });
}

NcclCommunicator::~NcclCommunicator() {
  NcclHandle last = release();
  if (!last.communicator)
    return;
  // Without memory the communicator remains.
  ignoreExceptions([&] {
    NcclAbort abort = abortTogether({last}, device);
    if (!hasEnded(abort.ended, Deadline::after(abortSeconds)))
      logUnended("aborting " + name, captured);
  });
}

Status NcclCommunicator::goneStatus() const {
  Status reason = failure.get();
  return reason.isOk() ? error(DDPHOOK_ABORTED,
                               "the communicator of %s is gone", name.c_str())
                       : reason;
}

Status NcclCommunicator::lateStatus(const std::string &what) const {
  return error(DDPHOOK_DEADLINE_EXCEEDED, "%s: NCCL was not ready in time, %s",
               what.c_str(), name.c_str());
}

/// Adds the group's name to a failure.
Status NcclCommunicator::inGroup(Status status) const {
  return status.isOk() ? status : withContext(std::move(status), name);
}

/// Waits until the last call is complete.
Status NcclCommunicator::poll(const Deadline &deadline, const char *what) {
  Backoff backoff;
  for (;;) {
    {
      std::lock_guard<std::mutex> lock(mutex);
      if (!handle)
        return goneStatus();
      ncclResult_t state = ncclSuccess;
      ncclResult_t asked = ncclCommGetAsyncError(handle, &state);
      if (asked != ncclSuccess)
        return inGroup(toStatus(asked, handle, what));
      if (isFailure(state))
        return inGroup(toStatus(state, handle, what));
      if (state == ncclSuccess)
        return Status::ok();
    }
    if (failure.isSet())
      return failure.get();
    if (deadline.expired())
      return lateStatus(what);
    backoff.pause();
  }
}

Status NcclCommunicator::create(const std::vector<ncclUniqueId> &ids, int size,
                                int rank, const std::string &name,
                                const CudaOptions &options,
                                const FailureLatch &failure,
                                const Deadline &deadline,
                                std::unique_ptr<NcclCommunicator> *result) {
  result->reset(
      new NcclCommunicator(name, size, options.isBlocking(), failure));
  NcclCommunicator *const created = result->get();
  DDPHOOK_TRY(
      toStatus(cudaGetDevice(&created->device), "asking for the current GPU"));
  return created->blocking
             ? created->joinElsewhere(ids, size, rank, options, deadline)
             : created->join(ids, size, rank, options, deadline);
}

static const char *const joining = "joining a process group";

static ncclResult_t initialize(ncclComm_t *communicator,
                               std::vector<ncclUniqueId> ids, int size,
                               int rank, ncclConfig_t config) {
  return ids.size() > 1 ? ncclCommInitRankScalable(communicator, size, rank,
                                                   static_cast<int>(ids.size()),
                                                   ids.data(), &config)
                        : ncclCommInitRankConfig(communicator, size,
                                                 ids.front(), rank, &config);
}

Status NcclCommunicator::join(const std::vector<ncclUniqueId> &ids, int size,
                              int rank, const CudaOptions &options,
                              const Deadline &deadline) {
  ncclResult_t begun =
      initialize(&handle, ids, size, rank, options.ncclConfig(name));
  if (isFailure(begun))
    return toStatus(begun, nullptr, joining);
  return poll(deadline, joining);
}

namespace {
/// The data of a thread that joins, which may be abandoned.
struct Joiner {
  CudaOptions options;
  NcclHandle handle;
  Status status;
};
} // namespace

/// NCCL waits for the other ranks here. It returns the communicator before
/// that, so that another thread can abort it.
Status NcclCommunicator::joinElsewhere(const std::vector<ncclUniqueId> &ids,
                                       int size, int rank,
                                       const CudaOptions &options,
                                       const Deadline &deadline) {
  auto joiner = std::make_shared<Joiner>();
  joiner->options = options;
  joiner->handle = {nullptr, sharedName, calls};
  joiner->status =
      error(DDPHOOK_RESOURCE_EXHAUSTED, "%s: cannot start a thread", joining);
  calls->begin();
  std::future<void> joined =
      callDetached("ddphook-join", [joiner, ids, size, rank, device = device] {
        enterDevice(device);
        joiner->status = toStatus(
            initialize(&joiner->handle.communicator, ids, size, rank,
                       joiner->options.ncclConfig(*joiner->handle.name)),
            nullptr, joining);
        joiner->handle.calls->end();
      });
  Status status;
  while (status.isOk() && !hasEnded(joined, Deadline::after(1e-3)))
    status = failure.isSet()      ? failure.get()
             : deadline.expired() ? lateStatus(joining)
                                  : Status::ok();
  handle = __atomic_load_n(&joiner->handle.communicator, __ATOMIC_ACQUIRE);
  if (!status.isOk() && !handle)
    logUnended("joining " + name, /*isCaptured=*/false);
  return status.isOk() ? joiner->status : status;
}

template <typename Function>
Status NcclCommunicator::launch(CollectiveKind kind, const Deadline &deadline,
                                const Function &function) {
  const std::string name = describeCollective(kind);
  const std::string what =
      std::string("starting a") + (name.front() == 'a' ? "n " : " ") + name;
  return blocking ? call(what, deadline, function)
                  : begin(what, deadline, function);
}

template <typename Function>
Status NcclCommunicator::begin(const std::string &what,
                               const Deadline &deadline,
                               const Function &function) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (!handle)
      return goneStatus();
    ncclResult_t begun = function(handle);
    if (begun != ncclInProgress)
      return inGroup(toStatus(begun, handle, what.c_str()));
  }
  return poll(deadline, what.c_str());
}

/// Runs a call that waits for peers. It returns once the communicator has been
/// aborted, because of a failure or the deadline, which asyncError() reports.
template <typename Function>
Status NcclCommunicator::call(const std::string &what, const Deadline &deadline,
                              const Function &function) {
  ncclComm_t communicator = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (!handle)
      return goneStatus();
    communicator = handle;
    waiting = Waiting{what, deadline};
    calls->begin();
  }
  Status status =
      inGroup(toStatus(function(communicator), communicator, what.c_str()));
  std::lock_guard<std::mutex> lock(mutex);
  waiting.reset();
  calls->end();
  return handle ? status : goneStatus();
}

/// Sends part k of `in` to rank k, and receives part k of `out` from it.
static ncclResult_t exchange(const void *in, void *out, int64_t part,
                             Dtype dtype, int size, ncclComm_t communicator,
                             cudaStream_t stream) {
  const ncclDataType_t type = ncclTypeOf(dtype);
  const auto count = static_cast<size_t>(part);
  const int64_t bytes = part * dtypeSize(dtype);
  ncclResult_t begun = ncclGroupStart();
  if (begun != ncclSuccess)
    return begun;
  for (int peer = 0; peer < size && !isFailure(begun); ++peer) {
    begun = ncclSend(static_cast<const char *>(in) + peer * bytes, count, type,
                     peer, communicator, stream);
    if (!isFailure(begun))
      begun = ncclRecv(static_cast<char *>(out) + peer * bytes, count, type,
                       peer, communicator, stream);
  }
  // In any case: the group is the thread's, not the communicator's.
  const ncclResult_t ended = ncclGroupEnd();
  return isFailure(begun) ? begun : ended;
}

Status NcclCommunicator::enqueue(CollectiveKind kind, const void *in, void *out,
                                 int64_t count, Dtype dtype,
                                 cudaStream_t stream, const Deadline &deadline,
                                 int root) {
  return launch(kind, deadline, [&](ncclComm_t communicator) {
    const ncclDataType_t type = ncclTypeOf(dtype);
    const auto n = static_cast<size_t>(count);
    switch (kind) {
    case CollectiveKind::AllReduce:
      return ncclAllReduce(in, out, n, type, ncclSum, communicator, stream);
    case CollectiveKind::ReduceScatter:
      return ncclReduceScatter(in, out, n, type, ncclSum, communicator, stream);
    case CollectiveKind::AllGather:
      return ncclAllGather(in, out, n, type, communicator, stream);
    case CollectiveKind::AllToAll:
      return exchange(in, out, count, dtype, size, communicator, stream);
    case CollectiveKind::Broadcast:
      return ncclBroadcast(in, out, n, type, root, communicator, stream);
    }
    return ncclInvalidArgument;
  });
}

Status NcclCommunicator::asyncError() {
  // If a thread is in a call, that thread checks the state itself.
  std::unique_lock<std::mutex> lock(mutex, std::try_to_lock);
  if (!lock.owns_lock() || !handle)
    return Status::ok();
  if (waiting && waiting->deadline.expired())
    return lateStatus(waiting->what);
  ncclResult_t state = ncclSuccess;
  ncclResult_t asked = ncclCommGetAsyncError(handle, &state);
  if (asked != ncclSuccess)
    return toStatus(asked, handle, "querying a communicator's state");
  if (isFailure(state))
    return inGroup(toStatus(state, handle, "a collective"));
  return Status::ok();
}

NcclHandle NcclCommunicator::release() {
  std::lock_guard<std::mutex> lock(mutex);
  return {std::exchange(handle, nullptr), sharedName, calls};
}

bool NcclCommunicator::leave(const Deadline &deadline) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (handle)
      for (const auto &[memory, registration] : registered)
        (void)ncclCommDeregister(handle, registration);
    registered.clear();
  }
  NcclHandle last = release();
  if (!last.communicator)
    return true;
  // This finalizes first, in which the ranks of a machine wait for each other.
  std::future<void> left =
      callDetached("ddphook-leave", [last, device = device] {
        enterDevice(device);
        (void)ncclCommDestroy(last.communicator);
      });
  if (hasEnded(left, deadline))
    return true;
  logUnended("leaving " + name, captured);
  return false;
}

Status NcclCommunicator::registerMemory(void *memory, size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  if (!handle)
    return goneStatus();
  void *registration = nullptr;
  DDPHOOK_TRY(toStatus(ncclCommRegister(handle, memory, bytes, &registration),
                       handle, "registering memory"));
  registered[memory] = registration;
  return Status::ok();
}

void NcclCommunicator::forgetMemory(void *memory) {
  std::lock_guard<std::mutex> lock(mutex);
  auto found = registered.find(memory);
  if (found == registered.end())
    return;
  if (handle)
    (void)ncclCommDeregister(handle, found->second);
  registered.erase(found);
}
