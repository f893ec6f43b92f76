// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels that were compiled to PTX, not for the host: those of modules, which
// are translated and compiled when they are loaded, and nvcc's, which the GPU
// library was built with.

#pragma once

#include "../ptx/ptx.h"
#include "cuda_runtime.h"

namespace emulated_cuda {

/// Lets programs register the kernels of `module` by their names.
void addDeviceCode(const ptx::Module &module);

/// Lets `function` stand for the kernel of that name.
void registerFunction(const void *function, const char *name);

/// Returns the error of a call that names `function`; cudaSuccess for a
/// function that is not a kernel of a module, or whose module could be
/// translated.
cudaError_t useFunction(const void *function);

/// Returns the most threads of a block of `function`.
unsigned mostThreadsOf(const void *function);

} // namespace emulated_cuda
