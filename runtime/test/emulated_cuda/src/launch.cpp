// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks a launch's shape as a device of compute capability 9.0 does. What the
// compiler knows there, registers and static shared memory, is not known here.

#include "block_runner.h"
#include "cuda_runtime.h"
#include "fault.h"
#include "stream.h"
#include "traffic.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

using namespace emulated_cuda;

static constexpr size_t defaultDynamicBytes = 48 << 10;
static constexpr size_t maxDynamicBytes = 227 << 10;

struct CUkern_st {
  cudaLibrary_t library;
};

/// A module's code. It is looked at when one of its kernels is first used, not
/// before. PTX then cannot be run here, and nothing else is known.
struct CUlib_st {
  std::string code;
  std::vector<std::unique_ptr<CUkern_st>> kernels;

  bool isPtx() const { return code.find(".version") != std::string::npos; }
  bool has(const std::string &kernel) const {
    return code.find(".entry " + kernel) != std::string::npos;
  }
};

namespace {
struct Limits {
  std::mutex mutex;
  std::map<const void *, size_t> dynamicBytes;
  /// Kernels of modules.
  std::set<const void *> loaded;

  /// What the first use of a module's kernel gives; cudaSuccess for a function
  /// of the program's own.
  cudaError_t use(const void *function) {
    std::lock_guard<std::mutex> lock(mutex);
    if (!loaded.count(function))
      return cudaSuccess;
    return static_cast<const CUkern_st *>(function)->library->isPtx()
               ? cudaErrorNotSupported
               : cudaErrorInvalidKernelImage;
  }

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
      static_cast<size_t>(block.x) * block.y * block.z > 1024)
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
  if (cudaError_t error = limits().use(function))
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
  if (cudaError_t error = limits().use(function))
    return record(error);
  *attributes = {};
  attributes->maxThreadsPerBlock = 1024;
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

cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *code,
                                cudaJitOption *, void **, unsigned int,
                                cudaLibraryOption *, void **, unsigned int) {
  Device *device;
  if (cudaError_t error = currentContext(&device))
    return record(error);
  if (!library || !code)
    return record(cudaErrorInvalidValue);
  if (cudaError_t error = refuseDuringCapture())
    return record(error);
  *library = new CUlib_st{static_cast<const char *>(code), {}};
  return cudaSuccess;
}

cudaError_t cudaLibraryUnload(cudaLibrary_t library) {
  if (!library)
    return record(cudaErrorInvalidResourceHandle);
  std::lock_guard<std::mutex> lock(limits().mutex);
  for (const auto &kernel : library->kernels)
    limits().loaded.erase(kernel.get());
  delete library;
  return cudaSuccess;
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library,
                                 const char *name) {
  if (!kernel || !library || !name)
    return record(cudaErrorInvalidValue);
  if (library->isPtx() && !library->has(name))
    return record(cudaErrorSymbolNotFound);
  std::lock_guard<std::mutex> lock(limits().mutex);
  library->kernels.push_back(std::make_unique<CUkern_st>(CUkern_st{library}));
  *kernel = library->kernels.back().get();
  limits().loaded.insert(*kernel);
  return cudaSuccess;
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *,
                                const void *function, void **) {
  cudaError_t error = limits().use(function);
  return record(error ? error : cudaErrorInvalidDeviceFunction);
}

} // extern "C"
