// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks a launch's shape as a device of compute capability 9.0 does. What the
// compiler knows there, registers and static shared memory, is not known here.

#include "block_runner.h"
#include "cuda_runtime.h"
#include "device_code.h"
#include "fault.h"
#include "stream.h"
#include "traffic.h"

#include <algorithm>
#include <map>
#include <mutex>

using namespace emulated_cuda;

static constexpr size_t defaultDynamicBytes = 48 << 10;
static constexpr size_t maxDynamicBytes = 227 << 10;

namespace {
struct Limits {
  std::mutex mutex;
  std::map<const void *, size_t> dynamicBytes;

  size_t of(const void *function) {
    std::lock_guard<std::mutex> lock(mutex);
    auto found = dynamicBytes.find(function);
    return found == dynamicBytes.end() ? defaultDynamicBytes : found->second;
  }
};
} // namespace

static Limits &limits() {
  static auto *limits = new Limits();
  return *limits;
}

static cudaError_t checkShape(const cudaLaunchConfig_t &config,
                              const void *function) {
  const dim3 &grid = config.gridDim, &block = config.blockDim;
  if (grid.x < 1 || grid.y < 1 || grid.z < 1 || grid.x > 2147483647u ||
      grid.y > 65535 || grid.z > 65535)
    return cudaErrorInvalidConfiguration;
  if (block.x < 1 || block.y < 1 || block.z < 1 || block.x > 1024 ||
      block.y > 1024 || block.z > 64 ||
      static_cast<size_t>(block.x) * block.y * block.z >
          mostThreadsOf(function))
    return cudaErrorInvalidConfiguration;
  if (config.dynamicSmemBytes > limits().of(function))
    return cudaErrorInvalidValue;
  if (config.numAttrs > 0 && !config.attrs)
    return cudaErrorInvalidValue;
  for (unsigned i = 0; i < config.numAttrs; ++i)
    if (config.attrs[i].id == cudaLaunchAttributeCooperative &&
        config.attrs[i].val.cooperative)
      return cudaErrorNotSupported;
  return cudaSuccess;
}

cudaError_t emulated_cuda::launch(const cudaLaunchConfig_t &config,
                                  Kernel kernel) {
  if (!kernel.function)
    return record(cudaErrorInvalidDeviceFunction);
  Device *current;
  if (cudaError_t error = currentContext(&current))
    return record(error);
  if (cudaError_t error = checkShape(config, kernel.function))
    return record(error);
  if (isFaultDue("launch"))
    return record(cudaErrorLaunchOutOfResources);
  std::lock_guard<std::mutex> lock(hostMutex());
  cudaStream_t stream;
  if (cudaError_t error = findStream(config.stream, &stream))
    return record(error);
  if (stream->device != current)
    return record(cudaErrorInvalidResourceHandle);
  auto run = [device = current, kernel = std::move(kernel),
              grid = config.gridDim, block = config.blockDim,
              bytes = config.dynamicSmemBytes] {
    if (isFaultDue("kernel")) {
      device->failure = cudaErrorIllegalAddress;
      return;
    }
    TrafficOfLaunch traffic;
    BlockRunner::ofThisThread().run(kernel, grid, block, bytes,
                                    settings().isReversed);
  };
  if (cudaError_t error = submitLocked(stream, std::move(run), nullptr))
    return record(error);
  return recordUnlessFailed(*current, cudaSuccess);
}

extern "C" {

cudaError_t cudaFuncSetAttribute(const void *function,
                                 cudaFuncAttribute attribute, int value) {
  if (!function)
    return record(cudaErrorInvalidDeviceFunction);
  if (cudaError_t error = useFunction(function))
    return record(error);
  switch (attribute) {
  case cudaFuncAttributeMaxDynamicSharedMemorySize: {
    if (value < 0 || static_cast<size_t>(value) > maxDynamicBytes)
      return record(cudaErrorInvalidValue);
    std::lock_guard<std::mutex> lock(limits().mutex);
    limits().dynamicBytes[function] = static_cast<size_t>(value);
    return cudaSuccess;
  }
  case cudaFuncAttributePreferredSharedMemoryCarveout:
    return record(value < -1 || value > 100 ? cudaErrorInvalidValue
                                            : cudaSuccess);
  }
  return record(cudaErrorInvalidValue);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes,
                                  const void *function) {
  Device *device;
  if (cudaError_t error = currentContext(&device))
    return record(error);
  if (!attributes || !function)
    return record(function ? cudaErrorInvalidValue
                           : cudaErrorInvalidDeviceFunction);
  if (cudaError_t error = useFunction(function))
    return record(error);
  *attributes = {};
  attributes->maxThreadsPerBlock = static_cast<int>(mostThreadsOf(function));
  attributes->ptxVersion = attributes->binaryVersion = device->capability;
  attributes->maxDynamicSharedSizeBytes =
      static_cast<int>(limits().of(function));
  attributes->preferredShmemCarveout = -1;
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks,
                                                          const void *function,
                                                          int blockSize,
                                                          size_t dynamicBytes) {
  Device *device;
  if (cudaError_t error = currentContext(&device))
    return record(error);
  if (!blocks || !function || blockSize < 1 || blockSize > 1024)
    return record(cudaErrorInvalidValue);
  size_t byThreads = 2048 / static_cast<size_t>((blockSize + 31) / 32 * 32);
  // Of each block's shared memory the system takes 1 KiB.
  size_t byShared = (228u << 10) / (dynamicBytes + 1024);
  *blocks = static_cast<int>(std::min({byThreads, byShared, size_t(32)}));
  return cudaSuccess;
}

} // extern "C"
