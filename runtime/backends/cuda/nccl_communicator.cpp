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

#include "cuda_error.h"

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

NcclCommunicator::~NcclCommunicator() { abort(); }

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

void NcclCommunicator::abort() {
  std::lock_guard<std::mutex> lock(mutex);
  if (handle)
    (void)ncclCommAbort(handle);
  handle = nullptr;
}

Status NcclCommunicator::finalize(const Deadline &deadline) {
  const char *what = "leaving a process group";
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (!handle)
      return Status::ok();
    for (const auto &[memory, registration] : registered)
      (void)ncclCommDeregister(handle, registration);
    registered.clear();
    ncclResult_t begun = ncclCommFinalize(handle);
    if (isFailure(begun))
      return toStatus(begun, handle, what);
  }
  DDPHOOK_RETURN_IF_ERROR(poll(deadline, what));
  std::lock_guard<std::mutex> lock(mutex);
  ncclComm_t last = handle;
  handle = nullptr;
  return last ? toStatus(ncclCommDestroy(last), nullptr, what) : Status::ok();
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
