//===- kernel_library.h - a compiled module's kernels -----------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Device code that a compiled module carries, loaded by the driver.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_CUDA_KERNEL_LIBRARY_H
#define DDPHOOK_RUNTIME_BACKENDS_CUDA_KERNEL_LIBRARY_H

#include "base/status.h"

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <vector>

namespace ddphook::cuda {

class KernelLibrary {
public:
  /// `code` is PTX, followed by a null, or an image that the driver knows.
  static Status load(const void *code, uint64_t bytes, const char *const *names,
                     int64_t count, std::unique_ptr<KernelLibrary> *result);
  ~KernelLibrary();

  Status launch(int64_t kernel, const int64_t *grid, const int64_t *block,
                int64_t sharedBytes, void **arguments, cudaStream_t stream);

private:
  struct Kernel {
    std::string name;
    cudaKernel_t handle = nullptr;
    /// Dynamic shared memory that it may use so far.
    int64_t sharedBytes = 0;
  };

  KernelLibrary() = default;

  cudaLibrary_t library = nullptr;
  std::vector<Kernel> kernels;
};

} // namespace ddphook::cuda

#endif // DDPHOOK_RUNTIME_BACKENDS_CUDA_KERNEL_LIBRARY_H
