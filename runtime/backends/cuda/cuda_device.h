// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Manages streams, memory and failures of a GPU. cuda_communicator.h has the
// collectives, kernel_library.h the kernels of compiled modules; docs/cuda.md
// says which stream runs what.

#pragma once

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

/// Used by one thread at a time, except for fail(); the GPU is that thread's
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

  /// The stream for all work except collectives, and the one for collectives.
  cudaStream_t computeStream() const { return compute; }
  cudaStream_t commStream() const { return comm; }
  Status setStream(cudaStream_t stream);
  /// Sets *result to true if the compute stream is recording a graph.
  Status isCapturing(bool *result) const;
  /// Returns FAILED_PRECONDITION if it is; `what` cannot be a part of a graph.
  Status refuseCapture(const char *what) const;

  Status allocate(uint64_t bytes, uint64_t alignment, void **memory);
  void release(void *memory);
  /// The source of memory that collectives never access, so that NCCL need not
  /// know it. It must be returned before the device is destroyed.
  MemorySource &plainMemory() { return callers ? *callers : cudaMemory(); }
  /// Keeps an object until no graph is being captured and the GPU has finished
  /// all work submitted by then.
  void keepWhileCapturing(std::shared_ptr<void> object);
  Status checkAddress(const void *address, const char *argument) const {
    return allocations->check(address, argument);
  }
  /// Copies between host and device on the compute stream, and waits for that.
  Status copyAndWait(void *to, const void *from, uint64_t bytes,
                     cudaMemcpyKind kind, const char *what);
  Status isFinite(const void *in, Dtype dtype, int64_t count, int32_t *result);
  Status sumSquares(const void *in, Dtype dtype, int64_t count, double *result);
  /// See kernels/sparse.h; both run on the compute stream.
  Status sparsify(int64_t keep, const void *in, int64_t count, void *entries,
                  void *rest);
  Status densify(const void *entries, int64_t parts, int64_t keep, void *out,
                 int64_t count);
  /// Scratch memory for affine codes on the compute stream.
  void *affineScratch() const { return scratch; }

  /// Waits until all started work has ended, at most until a deadline that
  /// restarts with every collective that ends.
  Status synchronize();

  /// Keeps the first final failure and has communicators aborted. Any thread
  /// may call it.
  Status fail(const Status &status);
  /// Keeps `status`, whatever it is. Any thread may call it.
  Status abort(const Status &status);
  /// Returns the kept failure.
  Status failure() const { return latch.get(); }
  const FailureLatch &failureLatch() const { return latch; }
  /// After a failure: waits until the streams are idle, within a time that
  /// starts with the first call. Returns true if they are.
  bool drain();
  /// After a failure: true if the GPU may still use its buffers.
  bool isStuck() { return latch.isSet() && !drain(); }

  void addCommunicator(NcclCommunicator *communicator);
  void removeCommunicator(NcclCommunicator *communicator);
  /// Leaves gracefully. The time for that starts with the first communicator
  /// whose peers do not leave.
  void leave(NcclCommunicator *communicator);
  /// Registers all allocations with a new communicator, if options ask for it.
  Status registerAll(NcclCommunicator *communicator);
  /// Makes the watchdog watch the work that was started.
  void wakeWatchdog() { watchdog.wake(); }
  Watchdog &ownWatchdog() { return watchdog; }

private:
  CudaDevice() = default;
  Status open(const ddphook_device_config_t &config);
  void chooseMemory(const ddphook_allocator_t *allocator);
  Status createStreams();
  Status waitForStreams(bool withComm, const char *what);
  cudaError_t queryStreams() const;
  bool isAnyCaptured() const;
  /// Logs it once.
  void tellStuck(const char *how);
  /// Returns DATA_LOSS if a finished densify() found invalid indices.
  Status placesFailure();
  /// True if the GPU has finished with memory to be freed; waits for that.
  bool isDone(const char *what);
  /// The same for the destructor, during which a capture may be in progress.
  bool isIdleAtEnd();
  void releaseNow(void *memory);
  template <typename T, typename Launch>
  Status ask(const char *what, T *result, const Launch &launch);
  void releaseDeferred();

  CudaOptions parsedOptions;
  DeviceChoice chosen;
  double timeout = 0;
  cudaStream_t own = nullptr;
  cudaStream_t compute = nullptr;
  cudaStream_t comm = nullptr;
  /// Initializes new memory; has no other work.
  cudaStream_t setup = nullptr;
  /// Orders one compute stream after another.
  cudaEvent_t switched = nullptr;
  /// For waitForStreams().
  cudaEvent_t computeEnd = nullptr, commEnd = nullptr;
  /// For ask(): on the device, and on the host, pinned.
  static constexpr size_t answerBytes = sizeof(double);
  void *deviceAnswer = nullptr;
  void *hostAnswer = nullptr;
  /// Scratch of sparsify(), and the pinned host flag for invalid indices that
  /// the kernel of densify() itself sets, since nobody waits for it.
  SparseScratch *sparse = nullptr;
  int32_t *badPlaces = nullptr;
  void *scratch = nullptr;
  std::unique_ptr<CallersMemory> callers;
  NcclMemory ncclMemory;
  std::unique_ptr<DeviceAllocations> allocations;
  /// Freed while a graph was captured, when nothing can be freed.
  std::vector<void *> deferred;
  std::vector<std::shared_ptr<void>> deferredObjects;
  std::set<NcclCommunicator *> communicators;
  FailureLatch latch;
  /// The deadline of all calls of drain().
  std::optional<Deadline> drained;
  bool hasToldStuck = false;
  /// The deadline of leave().
  std::optional<Deadline> leaving;
  InFlight collectives;
  Watchdog watchdog{latch, collectives};
};

/// Keeps an object forever, in memory that a leak checker sees as reachable.
void keepForever(std::shared_ptr<void> object);

} // namespace ddphook::cuda
