// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks of arguments, and groups: what a thread calls between ncclGroupStart()
// and ncclGroupEnd() begins with the latter.

#include "memory.h"
#include "nccl_bootstrap.h"
#include "nccl_communicator.h"
#include "race_detector.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <vector>

using namespace ddphook;
using namespace emulated_cuda;

namespace {
/// What a group holds for one communicator.
struct Pending {
  std::shared_ptr<Communicator> communicator;
  std::function<ncclResult_t()> work;
};
/// The sends and receives of a group on one communicator.
struct Exchange {
  std::shared_ptr<Communicator> communicator;
  Collective operation;
};
struct Group {
  int depth = 0;
  /// Of the calls inside; the first failure is the whole group's.
  ncclResult_t failure = ncclSuccess;
  std::vector<Pending> pending;
  std::vector<Exchange> exchanges;
  std::vector<ncclComm_t> aborted;
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

static ncclResult_t invalidArgument(const std::string &message) {
  if (group.depth > 0 && group.failure == ncclSuccess)
    group.failure = ncclInvalidArgument;
  return recordNccl(ncclInvalidArgument, message);
}

static ncclResult_t runPending(std::vector<Pending> pending) {
  // One piece of work for each communicator, with all that it has to do.
  std::vector<
      std::pair<std::shared_ptr<Communicator>, std::function<ncclResult_t()>>>
      all;
  for (const Pending &first : pending) {
    if (std::any_of(all.begin(), all.end(), [&](const auto &other) {
          return other.first == first.communicator;
        }))
      continue;
    std::vector<std::function<ncclResult_t()>> works;
    for (const Pending &other : pending)
      if (other.communicator == first.communicator)
        works.push_back(other.work);
    all.emplace_back(first.communicator, [works] {
      ncclResult_t result = ncclSuccess;
      for (const auto &work : works)
        if (result == ncclSuccess)
          result = work();
      return result;
    });
  }
  if (all.size() == 1)
    return all.front().first->start(std::move(all.front().second));
  // Blocking ones may wait for each other.
  std::vector<ncclResult_t> results(all.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < all.size(); ++i)
    threads.emplace_back([&results, &all, i] {
      results[i] = all[i].first->start(std::move(all[i].second));
    });
  for (std::thread &thread : threads)
    thread.join();
  ncclResult_t result = ncclSuccess;
  for (ncclResult_t own : results)
    if (result == ncclSuccess || result == ncclInProgress)
      result = own == ncclSuccess ? result : own;
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

static size_t sizeOf(ncclComm_t comm) {
  return comm ? static_cast<size_t>(comm->impl->size) : 0;
}

/// Begins a collective of `count` elements, of which this rank has `inCount`
/// and gets `outCount`.
static ncclResult_t collective(CollectiveKind kind, const void *in,
                               size_t inCount, void *out, size_t outCount,
                               size_t count, ncclDataType_t type,
                               ncclRedOp_t op, int root, ncclComm_t comm,
                               cudaStream_t stream) {
  if (!comm)
    return invalidArgument("expected a communicator");
  if (ncclResult_t result = comm->impl->notReady())
    return result;
  std::optional<Dtype> dtype = dtypeOf(type);
  if (!dtype || op != ncclSum)
    return invalidArgument(
        "expected the sum of f16, bf16, f32 or f64 (no other is "
        "emulated), but got type " +
        std::to_string(type) + " and operation " + std::to_string(op));
  if (root < 0 || root >= comm->impl->size)
    return invalidArgument("invalid root: " + std::to_string(root));
  Collective operation = {
      in, out, {static_cast<int64_t>(count), *dtype}, stream};
  operation.desc.kind = static_cast<int32_t>(kind);
  operation.desc.root = root;
  const auto bytes = static_cast<size_t>(dtypeSize(*dtype));
  if (!isReachable(in, inCount * bytes) || !isReachable(out, outCount * bytes))
    return invalidArgument("expected device memory for a collective");
  return begin(comm->impl, [self = comm->impl.get(), operation] {
    return self->submit(operation);
  });
}

/// A send, which only reads, or a receive. The group puts them together.
static ncclResult_t message(bool isSend, void *array, size_t count,
                            ncclDataType_t type, int peer, ncclComm_t comm,
                            cudaStream_t stream) {
  if (!comm)
    return invalidArgument("expected a communicator");
  if (ncclResult_t result = comm->impl->notReady())
    return result;
  std::optional<Dtype> dtype = dtypeOf(type);
  if (!dtype)
    return invalidArgument(
        "expected f16, bf16, f32 or f64 (no other is emulated), but "
        "got type " +
        std::to_string(type));
  const size_t bytes = count * static_cast<size_t>(dtypeSize(*dtype));
  if (!isReachable(array, bytes))
    return invalidArgument("expected device memory to send and receive");
  if (group.depth == 0)
    return invalidArgument("expected a group of sends and receives");
  Exchange *exchange = nullptr;
  for (Exchange &other : group.exchanges)
    if (other.communicator == comm->impl)
      exchange = &other;
  if (!exchange) {
    group.exchanges.push_back({comm->impl, {}});
    exchange = &group.exchanges.back();
    exchange->operation.stream = stream;
    exchange->operation.desc = {static_cast<int64_t>(count) * comm->impl->size,
                                *dtype};
    exchange->operation.desc.kind = DDPHOOK_ALL_TO_ALL;
  }
  Collective &operation = exchange->operation;
  const size_t expected =
      isSend ? operation.sends.size() : operation.receives.size();
  if (peer < 0 || static_cast<size_t>(peer) != expected ||
      peer >= comm->impl->size || operation.stream != stream ||
      operation.desc.type() != *dtype ||
      operation.desc.count != static_cast<int64_t>(count) * comm->impl->size)
    return invalidArgument("expected an all-to-all, in the order of the ranks");
  if (isSend)
    operation.sends.push_back(array);
  else
    operation.receives.push_back(array);
  return ncclSuccess;
}

extern "C" {

ncclResult_t ncclGetVersion(int *version) {
  if (!version)
    return invalidArgument("expected a place for the version");
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
    return invalidArgument("expected a place for the unique id");
  Status status = makeUniqueId(id);
  return status.isOk() ? ncclSuccess
                       : recordNccl(ncclSystemError, status.message());
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks,
                                    ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
  if (!comm)
    return invalidArgument("expected a place for the communicator");
  *comm = nullptr;
  if (nranks < 1 || rank < 0 || rank >= nranks)
    return invalidArgument("invalid rank requested: " + std::to_string(rank) +
                           "/" + std::to_string(nranks));
  if (config && config->magic != NCCL_CONFIG_MAGIC)
    return invalidArgument("the configuration was not initialized");
  if (config && config->blocking != NCCL_CONFIG_UNDEF_INT &&
      config->blocking != 0 && config->blocking != 1)
    return invalidArgument("expected blocking to be 0 or 1");
  Device *device;
  cudaError_t error = currentContext(&device);
  // NCCL frees memory on this thread.
  if (!error)
    error = refuseDuringCapture();
  if (error)
    return recordNccl(ncclUnhandledCudaError, cudaGetErrorString(error));
  const bool isBlocking =
      environmentNumber("NCCL_COMM_BLOCKING",
                        !config || config->blocking != 0) != 0;
  // The last one that holds it may be a graph, whose end TSan is told nothing
  // of, either.
  std::shared_ptr<Communicator> communicator(
      new Communicator(rank, nranks, device, isBlocking),
      [](Communicator *last) {
        race_detector::Hide hide;
        delete last;
      });
  // Another thread may abort it while this one waits, and must do so where this
  // one fails.
  __atomic_store_n(comm, new ncclComm{communicator}, __ATOMIC_RELEASE);
  return begin(communicator,
               [self = communicator.get(), id] { return self->join(id); });
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id,
                              int rank) {
  return ncclCommInitRankConfig(comm, nranks, id, rank, nullptr);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int nranks, int rank,
                                      int idCount, ncclUniqueId *ids,
                                      ncclConfig_t *config) {
  if (idCount < 1 || idCount > nranks || !ids)
    return invalidArgument("expected 1 to " + std::to_string(nranks) +
                           " unique ids, but got " + std::to_string(idCount));
  // More ids spread the work of meeting; all ranks meet at the first.
  return ncclCommInitRankConfig(comm, nranks, ids[0], rank, config);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (!comm)
    return invalidArgument("expected a communicator");
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
  comm->impl->destroy();
  race_detector::Hide hide;
  delete comm;
  return ncclSuccess;
}

static void finishAbort(ncclComm_t comm) {
  comm->impl->finishAbort();
  race_detector::Hide hide;
  delete comm;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (!comm)
    return ncclSuccess;
  if (group.depth == 0)
    comm->impl->refuseCallers();
  comm->impl->requestAbort();
  comm->impl->waitForJob();
  if (group.depth > 0)
    group.aborted.push_back(comm);
  else
    finishAbort(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result) {
  if (!comm || !result)
    return invalidArgument("expected a communicator and a place for its error");
  *result = comm->impl->state();
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count) {
  if (!comm || !count)
    return invalidArgument("expected a communicator and a place for its size");
  if (ncclResult_t result = comm->impl->notReady())
    return result;
  *count = comm->impl->size;
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device) {
  if (!comm || !device)
    return invalidArgument(
        "expected a communicator and a place for its device");
  if (ncclResult_t result = comm->impl->notReady())
    return result;
  *device = comm->impl->device->number;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank) {
  if (!comm || !rank)
    return invalidArgument("expected a communicator and a place for its rank");
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
    return invalidArgument(
        "expected a communicator and a place for the handle");
  if (ncclResult_t result = comm->impl->notReady())
    return result;
  if (!isReachable(memory, bytes))
    return invalidArgument("expected device memory to register");
  *handle = new char;
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle) {
  if (!comm)
    return invalidArgument("expected a communicator");
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
  std::vector<Exchange> exchanges = std::move(group.exchanges);
  group.exchanges.clear();
  std::vector<ncclComm_t> aborted = std::exchange(group.aborted, {});
  if (failure != ncclSuccess)
    return failure;
  for (ncclComm_t comm : aborted)
    finishAbort(comm);
  for (const Exchange &exchange : exchanges) {
    const auto size = static_cast<size_t>(exchange.communicator->size);
    const Collective &operation = exchange.operation;
    if (operation.sends.size() != size || operation.receives.size() != size)
      return recordNccl(ncclInvalidArgument,
                        "expected a send to and a receive from each rank");
    pending.push_back({exchange.communicator,
                       [self = exchange.communicator.get(), operation] {
                         return self->submit(operation);
                       }});
  }
  return runPending(std::move(pending));
}

ncclResult_t ncclAllReduce(const void *in, void *out, size_t count,
                           ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
  return collective(CollectiveKind::AllReduce, in, count, out, count, count,
                    type, op, /*root=*/0, comm, stream);
}

ncclResult_t ncclReduceScatter(const void *in, void *out, size_t part,
                               ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  const size_t count = part * sizeOf(comm);
  return collective(CollectiveKind::ReduceScatter, in, count, out, part, count,
                    type, op, /*root=*/0, comm, stream);
}

ncclResult_t ncclAllGather(const void *in, void *out, size_t part,
                           ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  const size_t count = part * sizeOf(comm);
  return collective(CollectiveKind::AllGather, in, part, out, count, count,
                    type, ncclSum, /*root=*/0, comm, stream);
}

ncclResult_t ncclBroadcast(const void *in, void *out, size_t count,
                           ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return collective(CollectiveKind::Broadcast, in, count, out, count, count,
                    type, ncclSum, root, comm, stream);
}

ncclResult_t ncclSend(const void *in, size_t count, ncclDataType_t type,
                      int peer, ncclComm_t comm, cudaStream_t stream) {
  return message(/*isSend=*/true, const_cast<void *>(in), count, type, peer,
                 comm, stream);
}

ncclResult_t ncclRecv(void *out, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return message(/*isSend=*/false, out, count, type, peer, comm, stream);
}

} // extern "C"
