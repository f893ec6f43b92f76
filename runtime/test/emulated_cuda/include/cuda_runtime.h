// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The runtime's C interface, the device's language, and the functions that take
// a kernel with its type. See cuda_runtime_api.h for what is emulated.

#pragma once

#include "cuda_runtime_api.h"
#include "emulated_cuda/block.h"
#include "emulated_cuda/intrinsics.h"
#include "emulated_cuda/qualifiers.h"

#include <functional>
#include <tuple>
#include <utility>

// Bounds of the __shared__ variables in what is being linked; none: null.
extern "C" {
extern char __start_emulated_cuda_shared[]
    __attribute__((weak, visibility("hidden")));
extern char __stop_emulated_cuda_shared[]
    __attribute__((weak, visibility("hidden")));
}

namespace emulated_cuda {

struct Kernel {
  /// The function, for its attributes.
  const void *function;
  /// Calls it with its arguments.
  std::function<void()> body;
  /// Where the initial values of its module's __shared__ variables are.
  const char *sharedBegin;
  const char *sharedEnd;
};

cudaError_t launch(const cudaLaunchConfig_t &config, Kernel kernel);

} // namespace emulated_cuda

template <typename... Expected, typename... Actual>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config,
                               void (*kernel)(Expected...), Actual &&...args) {
  // The arguments are converted and copied when the launch is made.
  std::tuple<Expected...> values(static_cast<Expected>(args)...);
  return emulated_cuda::launch(
      *config,
      {reinterpret_cast<const void *>(kernel),
       [kernel, values = std::move(values)] { std::apply(kernel, values); },
       __start_emulated_cuda_shared, __stop_emulated_cuda_shared});
}

template <typename T>
cudaError_t cudaFuncSetAttribute(T *func, cudaFuncAttribute attr, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void *>(func), attr,
                              value);
}
template <typename T>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attr, T *func) {
  return cudaFuncGetAttributes(attr, reinterpret_cast<const void *>(func));
}
template <typename T>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(
    int *numBlocks, T *func, int blockSize, size_t dynamicSMemSize) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      numBlocks, reinterpret_cast<const void *>(func), blockSize,
      dynamicSMemSize);
}
template <typename T>
cudaError_t cudaMalloc(T **devPtr, size_t size) {
  return cudaMalloc(reinterpret_cast<void **>(devPtr), size);
}
template <typename T>
cudaError_t cudaMallocHost(T **ptr, size_t size, unsigned int flags = 0) {
  return cudaHostAlloc(reinterpret_cast<void **>(ptr), size, flags);
}
template <typename T>
cudaError_t cudaHostAlloc(T **ptr, size_t size, unsigned int flags) {
  return cudaHostAlloc(reinterpret_cast<void **>(ptr), size, flags);
}
