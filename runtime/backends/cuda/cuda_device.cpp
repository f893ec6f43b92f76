// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every wait polls under a deadline, because CUDA's own waits have none.

#include "cuda_device.h"

#include "base/log.h"
#include "cuda_error.h"
#include "detached_call.h"
#include "kernels/affine.h"
#include "kernels/kernels.h"

#include <algorithm>
#include <mutex>
#include <utility>

using namespace ddphook;
using namespace ddphook::cuda;

/// The time that streams may take to drain after a failure. NCCL's kernels end
/// within milliseconds of an abort; anything later is stuck.
static constexpr double drainSeconds = 3;
/// The time for leaving groups gracefully. Ranks leave together, but need not;
/// NCCL then waits for the others on this machine. After that every further
/// group gets a moment, since its ranks may be different ones.
static constexpr double leaveSeconds = 3;
static constexpr double leaveAnotherSeconds = 0.1;
static constexpr int defaultWatchdogMs = 5;
/// A message about a late collective is more specific than one about a late
/// device, so the collective's deadline expires first.
static constexpr double marginSeconds = 0.25;

Status CudaDevice::create(const ddphook_device_config_t &config,
                          std::unique_ptr<CudaDevice> *result) {
  std::unique_ptr<CudaDevice> device(new CudaDevice());
  DDPHOOK_TRY(CudaOptions::parse(config.options ? config.options : "",
                                 &device->parsedOptions));
  if (config.allocator && device->parsedOptions.registerMemory.value_or(0))
    return invalid(
        "option register: register=1 takes memory from NCCL and "
        "cannot be combined with options.allocator; omit one of them");
  // NCCL chooses its transports itself.
  std::string transport = config.transport ? config.transport : "auto";
  if (transport != "auto" && transport != "nccl")
    return invalid("expected the transport 'auto' or 'nccl', but got '%s'",
                   transport.c_str());
  DDPHOOK_TRY(chooseDevice(config.local_rank, device->parsedOptions.device,
                           &device->chosen));
  CurrentDevice current(device->chosen.number);
  Status status = device->open(config);
  if (status.isOk())
    *result = std::move(device);
  else
    device.reset(); // while its GPU is the current device
  return status;
}

Status CudaDevice::open(const ddphook_device_config_t &config) {
  RelaxedCapture relaxed;
  timeout = config.timeout_s;
  parsedOptions.exportEnvironment();
  DDPHOOK_TRY(createStreams());
  chooseMemory(config.allocator);
  DDPHOOK_TRY(collectives.create());
  void *flag = nullptr;
  DDPHOOK_TRY(allocations->allocate(answerBytes, /*alignment=*/answerBytes,
                                    setup, &deviceAnswer));
  // The affine kernels require an address that is a multiple of 16.
  DDPHOOK_TRY(allocations->allocate(kAffineScratchBytes, /*alignment=*/256,
                                    setup, &scratch));
  DDPHOOK_TRY(toStatus(cudaMallocHost(&hostAnswer, answerBytes),
                       "allocating pinned memory"));
  DDPHOOK_TRY(allocations->allocate(sizeof(*sparse), alignof(SparseScratch),
                                    setup, &flag));
  sparse = static_cast<SparseScratch *>(flag);
  DDPHOOK_TRY(toStatus(cudaMallocHost(&flag, sizeof(*badPlaces)),
                       "allocating pinned memory"));
  badPlaces = static_cast<int32_t *>(flag);
  *badPlaces = 0;
  return watchdog.start(
      chosen.number, timeout,
      std::chrono::milliseconds(
          parsedOptions.watchdogMs.value_or(defaultWatchdogMs)));
}

void CudaDevice::chooseMemory(const ddphook_allocator_t *allocator) {
  if (allocator)
    callers = std::make_unique<CallersMemory>(*allocator, chosen.number, setup);
  MemorySource &source =
      parsedOptions.registerMemory.value_or(0) ? ncclMemory : plainMemory();
  allocations = std::make_unique<DeviceAllocations>(chosen.number, source);
}

Status CudaDevice::createStreams() {
  int least = 0, greatest = 0;
  DDPHOOK_TRY(toStatus(cudaDeviceGetStreamPriorityRange(&least, &greatest),
                       "reading the priorities of streams"));
  auto make = [&](std::optional<int> wanted, int byDefault,
                  cudaStream_t *stream) {
    int priority = std::clamp(wanted.value_or(byDefault), greatest, least);
    return toStatus(
        cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, priority),
        "creating a stream");
  };
  DDPHOOK_TRY(make(parsedOptions.computePriority, least, &own));
  // Collectives have priority, because other ranks wait for them.
  DDPHOOK_TRY(make(parsedOptions.commPriority, greatest, &comm));
  DDPHOOK_TRY(make(std::nullopt, least, &setup));
  for (cudaEvent_t *event : {&switched, &computeEnd, &commEnd})
    DDPHOOK_TRY(
        toStatus(cudaEventCreateWithFlags(event, cudaEventDisableTiming),
                 "creating an event"));
  compute = own;
  return Status::ok();
}

CudaDevice::~CudaDevice() {
  if (!own)
    return; // it was refused before it used a GPU
  CurrentDevice current(chosen.number);
  RelaxedCapture relaxed;
  if (allocations && !isIdleAtEnd()) {
    // Work that has not ended may still use all of this.
    for (std::shared_ptr<void> &object : deferredObjects)
      keepForever(std::move(object));
    return;
  }
  if (latch.isSet())
    watchdog.waitForAbortsEnd(Deadline::after(abortSeconds));
  releaseDeferred();
  callWhileIdle([answer = hostAnswer, places = badPlaces] {
    (void)cudaFreeHost(answer);
    (void)cudaFreeHost(places);
  });
  if (allocations)
    allocations->releaseAll();
  for (cudaEvent_t event : {switched, computeEnd, commEnd})
    if (event)
      (void)cudaEventDestroy(event);
  for (cudaStream_t stream : {comm, own, setup})
    if (stream)
      (void)cudaStreamDestroy(stream);
}

bool CudaDevice::isIdleAtEnd() {
  bool is = false;
  if (isCapturing(&is).isOk() && is) {
    ignoreExceptions([&] {
      log(LogLevel::Warn,
          "GPU " + std::to_string(chosen.number) +
              " is closed while its stream is being captured in a graph: "
              "memory that its work may use is not freed");
    });
    return false;
  }
  return isDone("closing the GPU");
}

Status CudaDevice::isCapturing(bool *result) const {
  cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;
  DDPHOOK_TRY(toStatus(cudaStreamIsCapturing(compute, &state),
                       "querying the stream's capture state"));
  *result = state != cudaStreamCaptureStatusNone;
  return Status::ok();
}

Status CudaDevice::refuseCapture(const char *what) const {
  bool is = false;
  DDPHOOK_TRY(isCapturing(&is));
  return is ? error(DDPHOOK_FAILED_PRECONDITION,
                    "%s cannot be captured in a graph", what)
            : Status::ok();
}

Status CudaDevice::setStream(cudaStream_t stream) {
  cudaStream_t next = stream ? stream : own;
  if (next == compute)
    return Status::ok();
  if (stream) {
    int number = chosen.number;
    cudaError_t asked = cudaStreamGetDevice(stream, &number);
    Status status = toStatus(asked, "querying the caller's stream");
    if (asked == cudaErrorInvalidResourceHandle)
      return invalid(status.message());
    DDPHOOK_TRY(status);
    if (number != chosen.number)
      return invalid("expected a stream of GPU %d, but got one of GPU %d",
                     chosen.number, number);
  }
  DDPHOOK_TRY(refuseCapture("leaving a stream"));
  cudaStream_t before = compute;
  compute = next;
  Status status = refuseCapture("setting a stream");
  if (status.isOk())
    status = toStatus(cudaEventRecord(switched, before), "leaving a stream");
  if (status.isOk())
    status =
        toStatus(cudaStreamWaitEvent(next, switched, 0), "setting a stream");
  if (!status.isOk())
    compute = before;
  return status;
}

Status CudaDevice::allocate(uint64_t bytes, uint64_t alignment, void **memory) {
  DDPHOOK_TRY(refuseCapture("allocating memory"));
  releaseDeferred();
  RelaxedCapture relaxed;
  DDPHOOK_TRY(allocations->allocate(bytes, alignment, setup, memory));
  if (!parsedOptions.registerMemory.value_or(0))
    return Status::ok();
  const DeviceAllocations::Block *block = allocations->find(*memory);
  for (NcclCommunicator *communicator : communicators) {
    Status status = communicator->registerMemory(block->base, block->baseBytes);
    if (!status.isOk()) {
      release(*memory);
      return status;
    }
  }
  return Status::ok();
}

void CudaDevice::release(void *memory) {
  bool is = false;
  if (!isCapturing(&is).isOk() || is)
    return deferred.push_back(memory);
  releaseDeferred();
  releaseNow(memory);
}

void CudaDevice::keepWhileCapturing(std::shared_ptr<void> object) {
  deferredObjects.push_back(std::move(object));
}

void CudaDevice::releaseDeferred() {
  for (void *memory : deferred)
    releaseNow(memory);
  deferred.clear();
  if (deferredObjects.empty())
    return;
  const bool isFree = isDone("freeing captured memory");
  RelaxedCapture relaxed;
  for (std::shared_ptr<void> &object : deferredObjects)
    if (!isFree)
      keepForever(std::move(object));
  deferredObjects.clear();
}

bool CudaDevice::isDone(const char *what) {
  return waitForStreams(/*withComm=*/true, what).isOk() || drain();
}

void CudaDevice::releaseNow(void *memory) {
  const DeviceAllocations::Block *block = allocations->find(memory);
  if (!block)
    return;
  // CUDA would wait for the device without a deadline, and a caller's allocator
  // would not wait.
  if (!isDone("freeing memory"))
    return allocations->abandon(memory);
  for (NcclCommunicator *communicator : communicators)
    communicator->forgetMemory(block->base);
  RelaxedCapture relaxed;
  allocations->release(memory);
}

void cuda::keepForever(std::shared_ptr<void> object) {
  static std::mutex mutex;
  static auto *kept = new std::vector<std::shared_ptr<void>>();
  std::lock_guard<std::mutex> lock(mutex);
  ignoreExceptions([&] { kept->push_back(std::move(object)); });
}

Status CudaDevice::registerAll(NcclCommunicator *communicator) {
  if (!parsedOptions.registerMemory.value_or(0))
    return Status::ok();
  for (const auto &[memory, block] : allocations->all())
    DDPHOOK_TRY(communicator->registerMemory(block.base, block.baseBytes));
  return Status::ok();
}

void CudaDevice::addCommunicator(NcclCommunicator *communicator) {
  communicators.insert(communicator);
  watchdog.add(communicator);
}

void CudaDevice::removeCommunicator(NcclCommunicator *communicator) {
  watchdog.remove(communicator);
  communicators.erase(communicator);
}

void CudaDevice::leave(NcclCommunicator *communicator) {
  if (!leaving)
    leaving = Deadline::after(std::min(leaveSeconds, timeout));
  const bool isInTime =
      communicator->leave(leaving->remaining() > leaveAnotherSeconds
                              ? *leaving
                              : Deadline::after(leaveAnotherSeconds));
  if (isInTime)
    leaving.reset();
}

cudaError_t CudaDevice::queryStreams() const {
  RelaxedCapture relaxed;
  const cudaError_t state = queryStream(compute);
  if (state == cudaErrorNotReady)
    return state;
  // Query this stream even if the caller's stream cannot be queried.
  const cudaError_t others = queryStream(comm);
  return others == cudaErrorNotReady || state == cudaSuccess ? others : state;
}

/// Waits for what the streams have now; others may go on to feed the caller's.
Status CudaDevice::waitForStreams(bool withComm, const char *what) {
  DDPHOOK_TRY(latch.get());
  RelaxedCapture relaxed;
  cudaError_t state = cudaEventRecord(computeEnd, compute);
  if (!state)
    state = cudaEventRecord(commEnd, comm);
  Watchdog::Watch watch(watchdog);
  Backoff backoff;
  const double seconds = timeout + marginSeconds;
  Deadline deadline = Deadline::after(seconds);
  int64_t ended = collectives.endedCount();
  for (;;) {
    if (latch.isSet())
      return latch.get();
    if (!state)
      state = queryEvent(computeEnd);
    if (!state && withComm)
      state = queryEvent(commEnd);
    if (state == cudaSuccess)
      return placesFailure();
    if (state != cudaErrorNotReady)
      return fail(toStatus(state, what));
    state = cudaSuccess;
    if (int64_t now = collectives.endedCount(); now != ended) {
      ended = now;
      deadline = Deadline::after(seconds);
    }
    if (deadline.expired())
      return fail(error(DDPHOOK_DEADLINE_EXCEEDED,
                        "%s: the GPU's work did not end within %g s", what,
                        timeout));
    backoff.pause();
  }
}

Status CudaDevice::synchronize() {
  // A failure is more informative than an ongoing capture.
  if (Status refused = refuseCapture("waiting"); !refused.isOk())
    return latch.isSet() ? latch.get() : refused;
  Status status = waitForStreams(/*withComm=*/true, "waiting for the GPU");
  if (!status.isOk())
    drain();
  return status;
}

Status CudaDevice::copyAndWait(void *to, const void *from, uint64_t bytes,
                               cudaMemcpyKind kind, const char *what) {
  DDPHOOK_TRY(refuseCapture(what));
  // A copy of pageable memory blocks until the stream reaches it.
  DDPHOOK_TRY(waitForStreams(/*withComm=*/false, what));
  DDPHOOK_TRY(toStatus(cudaMemcpyAsync(to, from, bytes, kind, compute), what));
  return waitForStreams(/*withComm=*/false, what);
}

/// Launches kernels that change an answer from 0, and waits for the answer.
template <typename T, typename Launch>
Status CudaDevice::ask(const char *what, T *result, const Launch &launch) {
  static_assert(sizeof(T) <= answerBytes, "expected space for the answer");
  DDPHOOK_TRY(refuseCapture(what));
  DDPHOOK_TRY(
      toStatus(cudaMemsetAsync(deviceAnswer, 0, sizeof(T), compute), what));
  DDPHOOK_TRY(toStatus(launch(static_cast<T *>(deviceAnswer)), what));
  DDPHOOK_TRY(toStatus(cudaMemcpyAsync(hostAnswer, deviceAnswer, sizeof(T),
                                       cudaMemcpyDeviceToHost, compute),
                       what));
  DDPHOOK_TRY(waitForStreams(/*withComm=*/false, what));
  *result = *static_cast<const T *>(hostAnswer);
  return Status::ok();
}

Status CudaDevice::isFinite(const void *in, Dtype dtype, int64_t count,
                            int32_t *result) {
  int32_t isFound = 0;
  DDPHOOK_TRY(
      ask("testing for non-finite numbers", &isFound, [&](int32_t *flag) {
        return findNonFinite(compute, in, dtype, count, flag);
      }));
  *result = isFound == 0;
  return Status::ok();
}

Status CudaDevice::sumSquares(const void *in, Dtype dtype, int64_t count,
                              double *result) {
  return ask("summing squares", result, [&](double *sum) {
    return addSquares(compute, in, dtype, count, sum);
  });
}

Status CudaDevice::sparsify(int64_t keep, const void *in, int64_t count,
                            void *entries, void *rest) {
  return toStatus(takeLargest(compute, static_cast<const float *>(in), count,
                              keep, entries, static_cast<float *>(rest),
                              sparse),
                  "extracting the largest elements");
}

Status CudaDevice::densify(const void *entries, int64_t parts, int64_t keep,
                           void *out, int64_t count) {
  DDPHOOK_TRY(placesFailure());
  return toStatus(addEntries(compute, entries, parts, keep,
                             static_cast<float *>(out), count, badPlaces),
                  "adding the largest elements");
}

Status CudaDevice::placesFailure() {
  // There is no flag if the device did not open.
  if (!badPlaces || __atomic_load_n(badPlaces, __ATOMIC_RELAXED) == 0)
    return latch.get();
  return fail(error(DDPHOOK_DATA_LOSS,
                    "expected ascending indices of a rank's largest "
                    "elements, but got indices out of order"));
}

Status CudaDevice::fail(const Status &status) {
  switch (status.code()) {
  case DDPHOOK_OK:
  case DDPHOOK_INVALID_ARGUMENT:
  case DDPHOOK_FAILED_PRECONDITION:
  case DDPHOOK_UNSUPPORTED:
  case DDPHOOK_RESOURCE_EXHAUSTED:
    return status;
  default:
    break;
  }
  return abort(status);
}

Status CudaDevice::abort(const Status &status) {
  Status first = latch.set(status);
  watchdog.wake();
  return first;
}

bool CudaDevice::drain() {
  if (!latch.isSet())
    return false;
  if (isAnyCaptured()) {
    tellStuck("is hidden by a capture");
    return false;
  }
  if (!drained)
    drained = Deadline::after(drainSeconds);
  watchdog.waitForAbort(*drained);
  Backoff backoff;
  while (queryStreams() == cudaErrorNotReady) {
    if (drained->expired()) {
      tellStuck("does not end");
      return false;
    }
    backoff.pause();
  }
  return true; // a failed device runs nothing any more
}

/// True if a stream is being captured: it then cannot report earlier work.
bool CudaDevice::isAnyCaptured() const {
  for (cudaStream_t stream : {compute, comm}) {
    cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(stream, &state) == cudaSuccess &&
        state != cudaStreamCaptureStatusNone)
      return true;
  }
  return false;
}

void CudaDevice::tellStuck(const char *how) {
  if (!std::exchange(hasToldStuck, true))
    ignoreExceptions([&] {
      log(LogLevel::Warn, "after a failure the work of GPU " +
                              std::to_string(chosen.number) + " " + how +
                              ": memory that it may use is not freed");
    });
}
