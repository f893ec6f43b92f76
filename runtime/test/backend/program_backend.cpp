// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// libddphook_backend_program.so is the runtime's way to a backend with which a
// test is linked, so that both use one CUDA runtime.

#include "ddphook/runtime/backend.h"

#include <dlfcn.h>

extern "C" __attribute__((visibility("default"))) const ddphook_backend_t *
ddphook_backend_get(void) {
  // The program comes before its libraries.
  void *get = dlsym(RTLD_DEFAULT, DDPHOOK_BACKEND_GET_SYMBOL);
  return reinterpret_cast<ddphook_backend_get_t>(get)();
}
