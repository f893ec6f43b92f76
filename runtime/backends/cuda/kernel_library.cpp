// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loads, finds and launches kernels; the driver compiles PTX for the GPU.

#include "kernel_library.h"

#include "cuda_error.h"

#include <algorithm>
#include <climits>

using namespace ddphook;
using namespace ddphook::cuda;

/// Dynamic shared memory that every kernel may use without a request.
static constexpr int64_t defaultSharedBytes = 48 * 1024;

static Status describeLoading(cudaError_t error) {
  int driver = 0;
  if (error != cudaErrorUnsupportedPtxVersion ||
      cudaDriverGetVersion(&driver) != cudaSuccess)
    return toStatus(error, "loading the module's kernels");
  return withContext(toStatus(error, "loading the module's kernels"),
                     "the driver knows CUDA up to " + cudaVersionText(driver));
}

Status KernelLibrary::load(const void *code, uint64_t bytes,
                           const char *const *names, int64_t count,
                           std::unique_ptr<KernelLibrary> *result) {
  if (!code || bytes == 0)
    return error(DDPHOOK_DATA_LOSS,
                 "expected the code of %lld kernels, but the module has none",
                 static_cast<long long>(count));
  std::unique_ptr<KernelLibrary> loaded(new KernelLibrary());
  if (cudaError_t failed = cudaLibraryLoadData(
          &loaded->library, code, nullptr, nullptr, 0, nullptr, nullptr, 0)) {
    loaded->library = nullptr;
    return describeLoading(failed);
  }
  for (int64_t i = 0; i < count; ++i) {
    Kernel kernel;
    kernel.name = names[i];
    kernel.sharedBytes = defaultSharedBytes;
    cudaError_t failed =
        cudaLibraryGetKernel(&kernel.handle, loaded->library, names[i]);
    if (failed == cudaErrorSymbolNotFound) {
      (void)cudaGetLastError();
      return error(DDPHOOK_DATA_LOSS,
                   "expected a kernel '%s' in the module's code, but there is "
                   "none (%s)",
                   names[i], cudaGetErrorName(failed));
    }
    // The driver compiles a kernel when it is first queried. Do this now, not
    // in the middle of a step.
    cudaFuncAttributes attributes;
    if (!failed)
      failed = cudaFuncGetAttributes(
          &attributes, reinterpret_cast<const void *>(kernel.handle));
    if (failed)
      return withContext(describeLoading(failed),
                         "kernel '" + kernel.name + "'");
    loaded->kernels.push_back(std::move(kernel));
  }
  *result = std::move(loaded);
  return Status::ok();
}

KernelLibrary::~KernelLibrary() {
  if (library)
    (void)cudaLibraryUnload(library);
}

static bool isSize(int64_t value) { return value >= 0 && value <= INT_MAX; }

static dim3 toDim(const int64_t *sizes) {
  return dim3(static_cast<unsigned>(sizes[0]), static_cast<unsigned>(sizes[1]),
              static_cast<unsigned>(sizes[2]));
}

Status KernelLibrary::launch(int64_t number, const int64_t *grid,
                             const int64_t *block, int64_t sharedBytes,
                             void **arguments, cudaStream_t stream) {
  Kernel &kernel = kernels[static_cast<size_t>(number)];
  if (!std::all_of(grid, grid + 3, isSize) ||
      !std::all_of(block, block + 3, isSize) || !isSize(sharedBytes))
    return invalid("kernel '%s': expected sizes from 0 to %d",
                   kernel.name.c_str(), INT_MAX);
  // The loop has no iterations.
  if (std::count(grid, grid + 3, 0) > 0)
    return Status::ok();
  const void *function = reinterpret_cast<const void *>(kernel.handle);
  if (sharedBytes > kernel.sharedBytes) {
    DDPHOOK_TRY(withContext(
        toStatus(cudaFuncSetAttribute(
                     function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                     static_cast<int>(sharedBytes)),
                 "asking for shared memory"),
        "kernel '" + kernel.name + "'"));
    kernel.sharedBytes = sharedBytes;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = toDim(grid);
  config.blockDim = toDim(block);
  config.dynamicSmemBytes = static_cast<size_t>(sharedBytes);
  config.stream = stream;
  cudaError_t launched = cudaLaunchKernelExC(&config, function, arguments);
  if (launched == cudaSuccess)
    return Status::ok();
  return withContext(toStatus(launched, "launching"),
                     "kernel '" + kernel.name + "'");
}
