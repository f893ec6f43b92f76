/*===- linked_backend.c - a test program's own backend, by name -----------===*
 *
 * Part of the ddphook project, under the Apache License v2.0 with LLVM
 * Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * The runtime loads backends by their names. "linked" is the one that the
 * program itself is linked with, so that a test shares its CUDA runtime with
 * the contexts that it creates.
 *
 *===----------------------------------------------------------------------===*/
#include "ddphook/runtime/backend.h"

/* The program exports it. */
extern const ddphook_backend_t *ddphook_test_linked_backend(void);

const ddphook_backend_t *ddphook_backend_get(void) {
  return ddphook_test_linked_backend();
}
