// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// As on a device, memory that is not pinned makes an asynchronous copy partly
// synchronous: such a source is read before the call returns, and a copy to
// such a destination has ended then. And it makes cudaMemcpy() to the device
// partly asynchronous: when that returns, the source was read, and the bytes
// are on their way, which only the legacy stream waits for.

#include "fault.h"
#include "memory.h"
#include "stream.h"

#include <chrono>
#include <cstring>
#include <thread>

using namespace emulated_cuda;

namespace {
struct Range {
  cudaMemoryType type = cudaMemoryTypeUnregistered;
  bool isWhole = true;
};
} // namespace

static Range classify(const void *address, size_t bytes) {
  Allocation allocation;
  if (!findAllocation(address, &allocation))
    return {};
  size_t rest = static_cast<size_t>(allocation.begin + allocation.bytes -
                                    static_cast<const char *>(address));
  return {allocation.type, bytes <= rest};
}

/// A device can use pinned host memory in place of its own.
static bool fits(cudaMemoryType type, bool isForDevice) {
  return type == cudaMemoryTypeHost ||
         (type == cudaMemoryTypeDevice) == isForDevice;
}

static cudaError_t check(const Range &to, const Range &from,
                         cudaMemcpyKind kind) {
  if (!to.isWhole || !from.isWhole)
    return cudaErrorInvalidValue;
  switch (kind) {
  case cudaMemcpyDefault:
    return cudaSuccess;
  case cudaMemcpyHostToHost:
  case cudaMemcpyHostToDevice:
  case cudaMemcpyDeviceToHost:
  case cudaMemcpyDeviceToDevice:
    // The numbers' bits say it: 1 for the destination, 2 for the source.
    return fits(to.type, kind & 1) && fits(from.type, kind & 2)
               ? cudaSuccess
               : cudaErrorInvalidValue;
  }
  return cudaErrorInvalidMemcpyDirection;
}

/// How long bytes that nobody waits for are on their way: long enough for what
/// does not wait to come first.
static constexpr auto transferTime = std::chrono::microseconds(500);

static cudaError_t copy(void *to, const void *from, size_t bytes,
                        cudaMemcpyKind kind, cudaStream_t handle,
                        std::chrono::microseconds delay) {
  if (bytes == 0)
    return cudaSuccess;
  if (!to || !from)
    return record(cudaErrorInvalidValue);
  const Range target = classify(to, bytes), source = classify(from, bytes);
  if (cudaError_t error = check(target, source, kind))
    return record(error);

  Mark mark;
  Device *device;
  {
    std::lock_guard<std::mutex> lock(hostMutex());
    cudaStream_t stream;
    if (cudaError_t error = findStream(handle, &stream))
      return record(error);
    device = stream->device;
    std::shared_ptr<std::vector<char>> staged;
    if (source.type == cudaMemoryTypeUnregistered && !stream->capture) {
      const char *begin = static_cast<const char *>(from);
      staged = std::make_shared<std::vector<char>>(begin, begin + bytes);
    }
    // The operation alone holds the staged bytes, and gives them back.
    auto transfer = [=, staged = std::move(staged)] {
      if (isFaultDue("memcpy"))
        device->failure = cudaErrorIllegalAddress;
      else {
        std::this_thread::sleep_for(delay);
        std::memcpy(to, staged ? staged->data() : from, bytes);
      }
    };
    if (cudaError_t error = submitLocked(stream, std::move(transfer), &mark))
      return record(error);
  }
  if (target.type == cudaMemoryTypeUnregistered && mark.queue)
    mark.wait();
  return recordUnlessFailed(*device, cudaSuccess);
}

extern "C" {

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream) {
  return copy(to, from, bytes, kind, stream, {});
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes,
                       cudaMemcpyKind kind) {
  if (cudaError_t error = refuseDuringCapture())
    return record(error);
  const bool isToDevice = isDeviceRange(to, bytes);
  // From memory that is not pinned, to the device.
  if (isToDevice && classify(from, bytes).type == cudaMemoryTypeUnregistered) {
    if (cudaError_t error = cudaStreamSynchronize(nullptr))
      return error;
    return copy(to, from, bytes, kind, nullptr, transferTime);
  }
  if (cudaError_t error = copy(to, from, bytes, kind, nullptr, {}))
    return error;
  // Between two places on the device the host is not made to wait.
  if (isToDevice && isDeviceRange(from, bytes))
    return cudaSuccess;
  return cudaStreamSynchronize(nullptr);
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes,
                            cudaStream_t stream) {
  if (bytes == 0)
    return cudaSuccess;
  Range target = classify(memory, bytes);
  if (!target.isWhole || target.type == cudaMemoryTypeUnregistered)
    return record(cudaErrorInvalidValue);
  return submit(stream, [=] { std::memset(memory, value, bytes); });
}

cudaError_t cudaMemset(void *memory, int value, size_t bytes) {
  if (cudaError_t error = refuseDuringCapture())
    return record(error);
  return cudaMemsetAsync(memory, value, bytes, nullptr);
}

} // extern "C"
