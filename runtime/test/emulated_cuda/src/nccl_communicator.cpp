//===- nccl_communicator.cpp - a communicator's ranks and state -----------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The host transport notices a dead peer; NCCL does not, between the GPUs of a
// machine. So that failure is kept from the caller: the operation waits to be
// aborted.
//
//===----------------------------------------------------------------------===//
#include "nccl_communicator.h"

#include "fault.h"
#include "nccl_bootstrap.h"
#include "race_detector.h"

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

using namespace ddphook;
using namespace emulated_cuda;

/// In seconds; nobody lives to see it pass.
static constexpr double forever = 1e7;

Communicator::~Communicator() {
  if (worker)
    worker->close();
}

ncclResult_t Communicator::start(std::function<ncclResult_t()> work) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    result = ncclInProgress;
    if (!worker)
      worker = Queue::create();
  }
  worker->push({}, [self = shared_from_this(), work = std::move(work)] {
    // The caller may be capturing: this thread's calls are no part of that.
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    cudaSetDevice(self->device->number);
    ncclResult_t result = work();
    std::lock_guard<std::mutex> lock(self->mutex);
    if (self->result == ncclInProgress)
      self->result = result;
    self->changed.notify_all();
  });
  return ncclInProgress;
}

ncclResult_t Communicator::waitForWork() {
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait(lock, [&] { return result != ncclInProgress; });
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
  if (isFaultDue("nccl_init_stall"))
    stall();
  Status status = exchange(id);
  if (status.isOk())
    return ncclSuccess;
  return recordNccl(isDuplicate ? ncclInvalidUsage : toNccl(status),
                    status.message());
}

Status Communicator::exchange(const ncclUniqueId &id) {
  std::unique_ptr<Bootstrap> bootstrap;
  DDPHOOK_RETURN_IF_ERROR(Bootstrap::connect(id, rank, isAborted, &bootstrap));
  if (Status gpus = checkGpus(*bootstrap); !gpus.isOk()) {
    // All ranks find the same, and none leaves before the others have read it.
    if (isDuplicate)
      (void)bootstrap->finish(size);
    return gpus;
  }
  if (size > 1) {
    std::unique_ptr<host::ShmGroup> made;
    DDPHOOK_RETURN_IF_ERROR(host::ShmGroup::create(*bootstrap, "group", rank,
                                                   size, forever, &made));
    std::lock_guard<std::mutex> lock(mutex);
    group = std::move(made);
    if (isAborted)
      group->abort();
  }
  return bootstrap->finish(size);
}

/// All ranks look at all GPUs, so that all give the same answer.
Status Communicator::checkGpus(Store &store) {
  const char *hostId = std::getenv("NCCL_HOSTID");
  const char *isAllowed = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  std::string gpu(device->uuid.bytes, sizeof(device->uuid.bytes));
  gpu += hostId ? hostId : "";
  DDPHOOK_RETURN_IF_ERROR(store.set("gpu" + std::to_string(rank), gpu));
  std::map<std::string, int> first;
  for (int other = 0; other < size; ++other) {
    std::string theirs;
    DDPHOOK_RETURN_IF_ERROR(store.get("gpu" + std::to_string(other),
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

ncclResult_t Communicator::submit(const AllReduce &operation) {
  if (isFaultDue("nccl_launch"))
    return recordNccl(ncclInternalError, "injected: launch failed");
  // A communicator's collectives run one after the other, in whatever streams.
  if (operation.stream != lastStream && lastCollective.queue) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaStreamIsCapturing(operation.stream, &status);
    if (status == cudaStreamCaptureStatusNone)
      emulated_cuda::submit(operation.stream,
                            [last = lastCollective] { last.wait(); });
  }
  Mark mark;
  cudaError_t error = emulated_cuda::submit(
      operation.stream,
      [self = shared_from_this(), operation] { self->run(operation); }, &mark);
  if (error)
    return recordNccl(ncclUnhandledCudaError, cudaGetErrorString(error));
  if (mark.queue) {
    lastCollective = mark;
    lastStream = operation.stream;
  }
  return ncclSuccess;
}

void Communicator::run(const AllReduce &operation) {
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
  } else if (current) {
    if (!current->allReduce(operation.desc, operation.in, operation.out).isOk())
      stall();
  } else if (operation.in != operation.out && operation.desc.count > 0) {
    std::memcpy(operation.out, operation.in,
                static_cast<size_t>(operation.desc.memoryBytes()));
  }
  if (isFaultDue("nccl_corrupt") && operation.desc.count > 0)
    *static_cast<char *>(operation.out) ^= 0x55;
  race_detector::Hide hide;
  std::lock_guard<std::mutex> lock(mutex);
  --runningCount;
  changed.notify_all();
}

ncclResult_t Communicator::finalize() {
  Mark last = lastCollective;
  if (last.queue)
    last.wait();
  return ncclSuccess;
}

void Communicator::abort() {
  std::unique_lock<std::mutex> lock(mutex);
  isAborted = true;
  if (group)
    group->abort();
  changed.notify_all();
  changed.wait(lock, [&] {
    return runningCount == 0 && (result != ncclInProgress || !worker);
  });
}
