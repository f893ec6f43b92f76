//===- nccl_api.cpp - NCCL's functions ------------------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks of arguments, and groups: what a thread calls between ncclGroupStart()
// and ncclGroupEnd() begins with the latter.
//
//===----------------------------------------------------------------------===//
#include "memory.h"
#include "nccl_bootstrap.h"
#include "nccl_communicator.h"
#include "race_detector.h"

#include <algorithm>
#include <optional>
#include <vector>

using namespace ddphook;
using namespace emulated_cuda;

namespace {
/// What a group holds for one communicator.
struct Pending {
  std::shared_ptr<Communicator> communicator;
  std::function<ncclResult_t()> work;
};
struct Group {
  int depth = 0;
  /// Of the calls inside; the first failure is the whole group's.
  ncclResult_t failure = ncclSuccess;
  std::vector<Pending> pending;
};
} // namespace

static thread_local Group group;

static std::mutex &errorMutex() {
  static auto *mutex = new std::mutex();
  return *mutex;
}
static std::string &errorText() {
  static auto *text = new std::string();
  return *text;
}

ncclResult_t emulated_cuda::recordNccl(ncclResult_t result,
                                       const std::string &message) {
  std::lock_guard<std::mutex> lock(errorMutex());
  errorText() = message;
  return result;
}

static ncclResult_t invalid(const std::string &message) {
  if (group.depth > 0 && group.failure == ncclSuccess)
    group.failure = ncclInvalidArgument;
  return recordNccl(ncclInvalidArgument, message);
}

static ncclResult_t runPending(std::vector<Pending> pending) {
  // One piece of work for each communicator, with all that it has to do.
  std::vector<std::shared_ptr<Communicator>> started;
  for (const Pending &first : pending) {
    if (std::count(started.begin(), started.end(), first.communicator))
      continue;
    std::vector<std::function<ncclResult_t()>> works;
    for (const Pending &other : pending)
      if (other.communicator == first.communicator)
        works.push_back(other.work);
    first.communicator->start([works] {
      ncclResult_t result = ncclSuccess;
      for (const auto &work : works)
        if (result == ncclSuccess)
          result = work();
      return result;
    });
    started.push_back(first.communicator);
  }
  ncclResult_t result = ncclSuccess;
  for (const std::shared_ptr<Communicator> &communicator : started) {
    ncclResult_t own =
        communicator->isBlocking ? communicator->waitForWork() : ncclInProgress;
    if (result == ncclSuccess || result == ncclInProgress)
      result = own == ncclSuccess ? result : own;
  }
  return result;
}

/// Begins `work`, or lets the group begin it.
static ncclResult_t begin(std::shared_ptr<Communicator> communicator,
                          std::function<ncclResult_t()> work) {
  std::vector<Pending> pending = {{std::move(communicator), std::move(work)}};
  if (group.depth == 0)
    return runPending(std::move(pending));
  group.pending.push_back(std::move(pending.front()));
  return ncclSuccess;
}

static std::optional<Dtype> dtypeOf(ncclDataType_t type) {
  switch (type) {
  case ncclFloat16:
    return Dtype::F16;
  case ncclBfloat16:
    return Dtype::BF16;
  case ncclFloat32:
    return Dtype::F32;
  case ncclFloat64:
    return Dtype::F64;
  default:
    return std::nullopt;
  }
}

/// Memory that a device can reach, from end to end.
static bool isReachable(const void *address, size_t bytes) {
  Allocation allocation;
  return bytes == 0 ||
         (findAllocation(address, &allocation) &&
          bytes <= static_cast<size_t>(allocation.begin + allocation.bytes -
                                       static_cast<const char *>(address)));
}

extern "C" {

ncclResult_t ncclGetVersion(int *version) {
  if (!version)
    return invalid("expected a place for the version");
  *version = static_cast<int>(
      environmentNumber("EMULATED_NCCL_VERSION", NCCL_VERSION_CODE));
  return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result) {
  switch (result) {
  case ncclSuccess:
    return "no error";
  case ncclUnhandledCudaError:
    return "unhandled cuda error";
  case ncclSystemError:
    return "unhandled system error";
  case ncclInternalError:
    return "internal error";
  case ncclInvalidArgument:
    return "invalid argument";
  case ncclInvalidUsage:
    return "invalid usage";
  case ncclRemoteError:
    return "remote process exited or there was a network error";
  case ncclInProgress:
    return "NCCL operation in progress";
  case ncclNumResults:
    break;
  }
  return "unknown result code";
}

const char *ncclGetLastError(ncclComm_t) {
  // A copy of the calling thread's own: another thread may fail meanwhile.
  static thread_local std::string copy;
  std::lock_guard<std::mutex> lock(errorMutex());
  copy = errorText();
  return copy.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  if (!id)
    return invalid("expected a place for the unique id");
  Status status = makeUniqueId(id);
  return status.isOk() ? ncclSuccess
                       : recordNccl(ncclSystemError, status.message());
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks,
                                    ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
  if (!comm)
    return invalid("expected a place for the communicator");
  *comm = nullptr;
  if (nranks < 1 || rank < 0 || rank >= nranks)
    return invalid("invalid rank requested: " + std::to_string(rank) + "/" +
                   std::to_string(nranks));
  if (config && config->magic != NCCL_CONFIG_MAGIC)
    return invalid("the configuration was not initialized");
  if (config && config->blocking != NCCL_CONFIG_UNDEF_INT &&
      config->blocking != 0 && config->blocking != 1)
    return invalid("expected blocking to be 0 or 1");
  Device *device;
  if (cudaError_t error = currentDevice(&device))
    return recordNccl(ncclUnhandledCudaError, cudaGetErrorString(error));
  bool isBlocking = !config || config->blocking != 0;
  auto communicator =
      std::make_shared<Communicator>(rank, nranks, device, isBlocking);
  ncclResult_t result = begin(
      communicator, [self = communicator.get(), id] { return self->join(id); });
  if (result == ncclSuccess || result == ncclInProgress)
    *comm = new ncclComm{communicator};
  return result;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id,
                              int rank) {
  return ncclCommInitRankConfig(comm, nranks, id, rank, nullptr);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int nranks, int rank,
                                      int idCount, ncclUniqueId *ids,
                                      ncclConfig_t *config) {
  if (idCount < 1 || idCount > nranks || !ids)
    return invalid("expected 1 to " + std::to_string(nranks) +
                   " unique ids, but got " + std::to_string(idCount));
  // More ids spread the work of meeting; all ranks meet at the first.
  return ncclCommInitRankConfig(comm, nranks, ids[0], rank, config);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (!comm)
    return invalid("expected a communicator");
  if (ncclResult_t result = comm->impl->notReady())
    return result;
  return begin(comm->impl,
               [self = comm->impl.get()] { return self->finalize(); });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (!comm)
    return ncclSuccess;
  if (comm->impl->state() == ncclInProgress)
    return recordNccl(ncclInvalidArgument,
                      "the communicator's previous operation has not ended");
  comm->impl->finalize();
  race_detector::Hide hide;
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (!comm)
    return ncclSuccess;
  comm->impl->abort();
  race_detector::Hide hide;
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result) {
  if (!comm || !result)
    return invalid("expected a communicator and a place for its error");
  *result = comm->impl->state();
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count) {
  if (!comm || !count)
    return invalid("expected a communicator and a place for its size");
  if (ncclResult_t result = comm->impl->notReady())
    return result;
  *count = comm->impl->size;
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device) {
  if (!comm || !device)
    return invalid("expected a communicator and a place for its device");
  if (ncclResult_t result = comm->impl->notReady())
    return result;
  *device = comm->impl->device->number;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank) {
  if (!comm || !rank)
    return invalid("expected a communicator and a place for its rank");
  if (ncclResult_t result = comm->impl->notReady())
    return result;
  *rank = comm->impl->rank;
  return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void **memory, size_t bytes) {
  cudaError_t error = cudaMalloc(memory, bytes);
  return error ? recordNccl(ncclUnhandledCudaError, cudaGetErrorString(error))
               : ncclSuccess;
}

ncclResult_t ncclMemFree(void *memory) {
  cudaError_t error = cudaFree(memory);
  return error ? recordNccl(ncclUnhandledCudaError, cudaGetErrorString(error))
               : ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *memory, size_t bytes,
                              void **handle) {
  if (!comm || !handle)
    return invalid("expected a communicator and a place for the handle");
  if (ncclResult_t result = comm->impl->notReady())
    return result;
  if (!isReachable(memory, bytes))
    return invalid("expected device memory to register");
  *handle = new char;
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle) {
  if (!comm)
    return invalid("expected a communicator");
  delete static_cast<char *>(handle);
  return ncclSuccess;
}

ncclResult_t ncclGroupStart(void) {
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
  if (group.depth == 0)
    return recordNccl(ncclInvalidUsage, "ncclGroupEnd: not in a group call");
  if (--group.depth > 0)
    return ncclSuccess;
  ncclResult_t failure = std::exchange(group.failure, ncclSuccess);
  std::vector<Pending> pending = std::move(group.pending);
  group.pending.clear();
  return failure != ncclSuccess ? failure : runPending(std::move(pending));
}

ncclResult_t ncclAllReduce(const void *in, void *out, size_t count,
                           ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
  if (!comm)
    return invalid("expected a communicator");
  if (ncclResult_t result = comm->impl->notReady())
    return result;
  std::optional<Dtype> dtype = dtypeOf(type);
  if (!dtype || op != ncclSum)
    return invalid("expected the sum of f16, bf16, f32 or f64 (no other is "
                   "emulated), but got type " +
                   std::to_string(type) + " and operation " +
                   std::to_string(op));
  AllReduce operation = {in, out, {}, stream};
  operation.desc.count = static_cast<int64_t>(count);
  operation.desc.dtype = *dtype;
  size_t bytes = static_cast<size_t>(operation.desc.memoryBytes());
  if (!isReachable(in, bytes) || !isReachable(out, bytes))
    return invalid("expected device memory to reduce");
  return begin(comm->impl, [self = comm->impl.get(), operation] {
    return self->submit(operation);
  });
}

} // extern "C"
