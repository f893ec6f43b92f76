//===- nccl_communicator.cpp - a communicator of NCCL ---------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every call may return ncclInProgress; until that is over, NCCL allows nothing
// on the communicator but asking for its state and aborting it.
//
//===----------------------------------------------------------------------===//
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

/// A new thread is to use this GPU, whatever a capture elsewhere forbids: to
/// ask for another GPU would make a context there.
static void enterDevice(int device) {
  (void)cudaSetDevice(device);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
}

NcclAbort cuda::abortTogether(std::vector<NcclHandle> handles, int device) {
  auto requested = std::make_shared<std::promise<void>>();
  NcclAbort abort;
  abort.requested = requested->get_future();
  abort.ended = callDetached("ddphook-abort",
                             [handles = std::move(handles), device, requested] {
                               enterDevice(device);
                               (void)ncclGroupStart();
                               for (const NcclHandle &handle : handles)
                                 (void)ncclCommAbort(handle.communicator);
                               requested->set_value();
                               (void)ncclGroupEnd();
                             });
  return abort;
}

void cuda::logUnended(const std::string &what, bool isCaptured) {
  log(LogLevel::Warn,
      what + ": NCCL has not come to an end, and is left to itself; " +
          (isCaptured ? "expected CUDA graphs with collectives to be destroyed "
                        "before"
                      : "other ranks may not have left, or the GPU may be "
                        "busy with other work"));
}

NcclCommunicator::~NcclCommunicator() {
  NcclHandle last = release();
  if (!last.communicator)
    return;
  NcclAbort abort = abortTogether({last}, device);
  if (!hasEnded(abort.ended, Deadline::after(abortSeconds)))
    logUnended("aborting " + name, captured);
}

Status NcclCommunicator::goneStatus() const {
  Status reason = failure.get();
  return reason.isOk() ? error(DDPHOOK_ABORTED,
                               "the communicator of %s is gone", name.c_str())
                       : reason;
}

/// The failure with the group's name.
Status NcclCommunicator::inGroup(Status status) const {
  return status.isOk() ? status : withContext(std::move(status), name);
}

/// Waits until the last call is over.
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
      return error(DDPHOOK_DEADLINE_EXCEEDED,
                   "%s: NCCL did not get ready in time, %s", what,
                   name.c_str());
    backoff.pause();
  }
}

Status NcclCommunicator::create(const std::vector<ncclUniqueId> &ids, int size,
                                int rank, const std::string &name,
                                const CudaOptions &options,
                                const FailureLatch &failure,
                                const Deadline &deadline,
                                std::unique_ptr<NcclCommunicator> *result) {
  std::unique_ptr<NcclCommunicator> created(
      new NcclCommunicator(name, failure));
  DDPHOOK_RETURN_IF_ERROR(
      toStatus(cudaGetDevice(&created->device), "asking for the current GPU"));
  ncclConfig_t config = options.ncclConfig(created->name);
  std::vector<ncclUniqueId> roots = ids;
  ncclResult_t begun =
      roots.size() > 1
          ? ncclCommInitRankScalable(&created->handle, size, rank,
                                     static_cast<int>(roots.size()),
                                     roots.data(), &config)
          : ncclCommInitRankConfig(&created->handle, size, roots.front(), rank,
                                   &config);
  const char *what = "joining a process group";
  if (isFailure(begun))
    return toStatus(begun, nullptr, what);
  DDPHOOK_RETURN_IF_ERROR(created->poll(deadline, what));
  *result = std::move(created);
  return Status::ok();
}

template <typename Function>
Status NcclCommunicator::launch(CollectiveKind kind, const Deadline &deadline,
                                const Function &function) {
  const std::string name = describeCollective(kind);
  const std::string what =
      std::string("starting a") + (name.front() == 'a' ? "n " : " ") + name;
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (!handle)
      return goneStatus();
    ncclResult_t begun = function();
    if (begun != ncclInProgress)
      return inGroup(toStatus(begun, handle, what.c_str()));
  }
  return poll(deadline, what.c_str());
}

Status NcclCommunicator::allReduce(const void *in, void *out, int64_t count,
                                   Dtype dtype, cudaStream_t stream,
                                   const Deadline &deadline) {
  return launch(CollectiveKind::AllReduce, deadline, [&] {
    return ncclAllReduce(in, out, static_cast<size_t>(count), ncclTypeOf(dtype),
                         ncclSum, handle, stream);
  });
}

Status NcclCommunicator::reduceScatter(const void *in, void *out, int64_t part,
                                       Dtype dtype, cudaStream_t stream,
                                       const Deadline &deadline) {
  return launch(CollectiveKind::ReduceScatter, deadline, [&] {
    return ncclReduceScatter(in, out, static_cast<size_t>(part),
                             ncclTypeOf(dtype), ncclSum, handle, stream);
  });
}

Status NcclCommunicator::allGather(const void *in, void *out, int64_t part,
                                   Dtype dtype, cudaStream_t stream,
                                   const Deadline &deadline) {
  return launch(CollectiveKind::AllGather, deadline, [&] {
    return ncclAllGather(in, out, static_cast<size_t>(part), ncclTypeOf(dtype),
                         handle, stream);
  });
}

Status NcclCommunicator::allToAll(const void *in, void *out, int64_t part,
                                  int size, Dtype dtype, cudaStream_t stream,
                                  const Deadline &deadline) {
  const int64_t bytes = part * dtypeSize(dtype);
  return launch(CollectiveKind::AllToAll, deadline, [&] {
    const ncclDataType_t type = ncclTypeOf(dtype);
    const auto count = static_cast<size_t>(part);
    ncclResult_t begun = ncclGroupStart();
    if (begun != ncclSuccess)
      return begun;
    for (int peer = 0; peer < size && !isFailure(begun); ++peer) {
      begun = ncclSend(static_cast<const char *>(in) + peer * bytes, count,
                       type, peer, handle, stream);
      if (!isFailure(begun))
        begun = ncclRecv(static_cast<char *>(out) + peer * bytes, count, type,
                         peer, handle, stream);
    }
    // Always: the group is the thread's, not the communicator's.
    const ncclResult_t ended = ncclGroupEnd();
    return isFailure(begun) ? begun : ended;
  });
}

Status NcclCommunicator::broadcast(const void *in, void *out, int64_t count,
                                   int root, Dtype dtype, cudaStream_t stream,
                                   const Deadline &deadline) {
  return launch(CollectiveKind::Broadcast, deadline, [&] {
    return ncclBroadcast(in, out, static_cast<size_t>(count), ncclTypeOf(dtype),
                         root, handle, stream);
  });
}

Status NcclCommunicator::asyncError() {
  // A thread that is in a call looks itself.
  std::unique_lock<std::mutex> lock(mutex, std::try_to_lock);
  if (!lock.owns_lock() || !handle)
    return Status::ok();
  ncclResult_t state = ncclSuccess;
  ncclResult_t asked = ncclCommGetAsyncError(handle, &state);
  if (asked != ncclSuccess)
    return toStatus(asked, handle, "asking a communicator for its state");
  if (isFailure(state))
    return inGroup(toStatus(state, handle, "a collective"));
  return Status::ok();
}

NcclHandle NcclCommunicator::release() {
  std::lock_guard<std::mutex> lock(mutex);
  return {std::exchange(handle, nullptr), sharedName};
}

void NcclCommunicator::leave(const Deadline &deadline) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (handle)
      for (const auto &[memory, registration] : registered)
        (void)ncclCommDeregister(handle, registration);
    registered.clear();
  }
  NcclHandle last = release();
  if (!last.communicator)
    return;
  // It finalizes first. Ranks of this machine wait for each other in it.
  std::future<void> left =
      callDetached("ddphook-leave", [last, device = device] {
        enterDevice(device);
        (void)ncclCommDestroy(last.communicator);
      });
  if (!hasEnded(left, deadline))
    logUnended("leaving " + name, captured);
}

Status NcclCommunicator::registerMemory(void *memory, size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  if (!handle)
    return goneStatus();
  void *registration = nullptr;
  DDPHOOK_RETURN_IF_ERROR(
      toStatus(ncclCommRegister(handle, memory, bytes, &registration), handle,
               "registering memory"));
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
