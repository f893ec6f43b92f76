//===- cuda_device.h - a process's use of one GPU ---------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Streams, memory and failures of a GPU. Collectives are in
// cuda_communicator.h, kernels of compiled modules in kernel_library.h; which
// stream runs what is in docs/cuda.md.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_CUDA_CUDA_DEVICE_H
#define DDPHOOK_RUNTIME_BACKENDS_CUDA_CUDA_DEVICE_H

#include "base/dtype.h"
#include "cuda_options.h"
#include "ddphook/runtime/backend.h"
#include "device_allocations.h"
#include "device_choice.h"
#include "failure_latch.h"
#include "in_flight.h"
#include "kernels/sparse.h"
#include "memory_sources.h"
#include "thread_state.h"
#include "watchdog.h"

#include <memory>
#include <optional>
#include <set>

namespace ddphook::cuda {

/// One thread at a time calls it, fail() excepted; the GPU is that thread's
/// current device.
class CudaDevice {
public:
  static Status create(const ddphook_device_config_t &config,
                       std::unique_ptr<CudaDevice> *result);
  ~CudaDevice();

  const DeviceChoice &choice() const { return chosen; }
  const CudaOptions &options() const { return parsedOptions; }
  double timeoutSeconds() const { return timeout; }
  InFlight &inFlight() { return collectives; }

  /// The queue of all work but collectives; and theirs.
  cudaStream_t computeStream() const { return compute; }
  cudaStream_t commStream() const { return comm; }
  Status setStream(cudaStream_t stream);
  /// Whether the compute stream is recording a graph.
  Status isCapturing(bool *result) const;
  /// FAILED_PRECONDITION where it is; `what` cannot be a part of a graph.
  Status refuseCapture(const char *what) const;

  Status allocate(uint64_t bytes, uint64_t alignment, void **memory);
  void release(void *memory);
  /// Where memory comes from that collectives never see, and so NCCL need not
  /// know. What is taken there is given back before the device goes.
  MemorySource &plainMemory() { return callers ? *callers : cudaMemory(); }
  /// Keeps an object until no graph is captured any more and the GPU has done
  /// all that it was given until then.
  void keepWhileCapturing(std::shared_ptr<void> object);
  Status checkAddress(const void *address, const char *argument) const {
    return allocations->check(address, argument);
  }
  /// Host to device or back, on the compute stream; waits for it.
  Status copyAndWait(void *to, const void *from, uint64_t bytes,
                     cudaMemcpyKind kind, const char *what);
  Status isFinite(const void *in, Dtype dtype, int64_t count, int32_t *result);
  /// Both of kernels/sparse.h, on the compute stream.
  Status sparsify(int64_t keep, const void *in, int64_t count, void *entries,
                  void *rest);
  Status densify(const void *entries, int64_t parts, int64_t keep, void *out,
                 int64_t count);
  /// For affine codes on the compute stream.
  void *affineScratch() const { return scratch; }

  /// Waits until what was begun has ended, at most until a deadline that starts
  /// anew with every collective that ends.
  Status synchronize();

  /// Keeps the first failure that is final, and has communicators aborted. Any
  /// thread.
  Status fail(const Status &status);
  /// Keeps `status`, whatever it is. Any thread.
  Status abort(const Status &status);
  /// The failure that was kept.
  Status failure() const { return latch.get(); }
  const FailureLatch &failureLatch() const { return latch; }
  /// After a failure: waits until streams are idle, for a while that begins
  /// with the first call. Tells whether they are.
  bool drain();
  /// After a failure: whether the GPU may still use what it was given.
  bool isStuck() { return latch.isSet() && !drain(); }

  void addCommunicator(NcclCommunicator *communicator);
  void removeCommunicator(NcclCommunicator *communicator);
  /// Leaves in good order, waiting for a while that begins with the first
  /// communicator of those that are left in vain.
  void leave(NcclCommunicator *communicator);
  /// Registers what is allocated with a new communicator, where options ask for
  /// that.
  Status registerAll(NcclCommunicator *communicator);
  /// What started is to be watched.
  void wakeWatchdog() { watchdog.wake(); }
  Watchdog &ownWatchdog() { return watchdog; }

private:
  CudaDevice() = default;
  Status open(const ddphook_device_config_t &config);
  void chooseMemory(const ddphook_allocator_t *allocator);
  Status createStreams();
  Status waitForStreams(bool withComm, const char *what);
  cudaError_t queryStreams(bool withComm) const;
  bool isAnyCaptured() const;
  /// Once, in the log.
  void tellStuck(const char *how);
  /// DATA_LOSS where a densify() that has ended met places that cannot be.
  Status placesFailure();
  /// Whether the GPU is done with what is to be given back, for which it waits.
  bool isDone(const char *what);
  /// The same for the destructor; a capture may still be under way there.
  bool isIdleAtEnd();
  void releaseNow(void *memory);
  void releaseDeferred();

  CudaOptions parsedOptions;
  DeviceChoice chosen;
  double timeout = 0;
  cudaStream_t own = nullptr;
  cudaStream_t compute = nullptr;
  cudaStream_t comm = nullptr;
  /// Fills new memory, behind nothing else.
  cudaStream_t setup = nullptr;
  /// Orders one compute stream after another.
  cudaEvent_t switched = nullptr;
  /// For isFinite(): on the device, and on the host, pinned.
  int32_t *deviceFlag = nullptr;
  int32_t *hostFlag = nullptr;
  /// For sparsify(), and what densify() finds wrong with places, on the host,
  /// pinned: the kernel itself writes there, since nobody waits for it.
  SparseScratch *sparse = nullptr;
  int32_t *badPlaces = nullptr;
  void *scratch = nullptr;
  std::unique_ptr<CallersMemory> callers;
  NcclMemory ncclMemory;
  std::unique_ptr<DeviceAllocations> allocations;
  /// Given back while a graph was captured, when nothing can be freed.
  std::vector<void *> deferred;
  std::vector<std::shared_ptr<void>> deferredObjects;
  std::set<NcclCommunicator *> communicators;
  FailureLatch latch;
  /// Of all calls of drain().
  std::optional<Deadline> drained;
  bool hasToldStuck = false;
  /// Of leave().
  std::optional<Deadline> leaving;
  InFlight collectives;
  Watchdog watchdog{latch, collectives};
};

/// Keeps what is not destroyed where a search for leaks finds it.
void keepForever(std::shared_ptr<void> object);

} // namespace ddphook::cuda

#endif // DDPHOOK_RUNTIME_BACKENDS_CUDA_CUDA_DEVICE_H
