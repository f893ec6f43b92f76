// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Implements what nvcc's start-up code in a program calls: it registers the
// host's function of every kernel under the kernel's name. The programs launch
// with cudaLaunchKernelExC(), not with <<<…>>>.

#include "device_code.h"

#include <cstdio>
#include <cstdlib>

static void *unknown(const char *name) {
  std::fprintf(stderr, "emulated CUDA: %s is not known\n", name);
  std::abort();
}

extern "C" {

void **__cudaRegisterFatBinary(void *) {
  static void *handle;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void **) {}
void __cudaUnregisterFatBinary(void **) {}
void __cudaRegisterFunction(void **, const char *function, char *,
                            const char *name, int, void *, void *, void *,
                            void *, int *) {
  emulated_cuda::registerFunction(function, name);
}

void __cudaRegisterVar() { unknown("__cudaRegisterVar"); }
void __cudaPushCallConfiguration() { unknown("__cudaPushCallConfiguration"); }
void __cudaPopCallConfiguration() { unknown("__cudaPopCallConfiguration"); }
void __cudaGetKernel() { unknown("__cudaGetKernel"); }
void __cudaLaunchKernel() { unknown("__cudaLaunchKernel"); }

} // extern "C"
