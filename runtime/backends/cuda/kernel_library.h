// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loads the device code of a compiled module with the driver.

#pragma once

#include "base/status.h"

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <vector>

namespace ddphook::cuda {

class KernelLibrary {
public:
  /// `code` is null-terminated PTX or an image that the driver accepts.
  static Status load(const void *code, uint64_t bytes, const char *const *names,
                     int64_t count, std::unique_ptr<KernelLibrary> *result);
  ~KernelLibrary();

  Status launch(int64_t kernel, const int64_t *grid, const int64_t *block,
                int64_t sharedBytes, void **arguments, cudaStream_t stream);

private:
  struct Kernel {
    std::string name;
    cudaKernel_t handle = nullptr;
    /// The dynamic shared memory that it may use now.
    int64_t sharedBytes = 0;
  };

  KernelLibrary() = default;

  cudaLibrary_t library = nullptr;
  std::vector<Kernel> kernels;
};

} // namespace ddphook::cuda
