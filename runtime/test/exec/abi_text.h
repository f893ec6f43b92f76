/*===- abi_text.h - the ABI version as a string literal ------------*- C -*-===*
 *
 * Part of the ddphook project, under the Apache License v2.0 with LLVM
 * Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 *===----------------------------------------------------------------------===*/
#ifndef DDPHOOK_RUNTIME_TEST_EXEC_ABI_TEXT_H
#define DDPHOOK_RUNTIME_TEST_EXEC_ABI_TEXT_H

#include "ddphook/runtime/compiled.h"

#define DDPHOOK_TEXT_OF_TOKEN(token) #token
#define DDPHOOK_TEXT_OF(macro) DDPHOOK_TEXT_OF_TOKEN(macro)

/* DDPHOOK_ABI_VERSION for the plans that tests write by hand. */
#define ABI_TEXT DDPHOOK_TEXT_OF(DDPHOOK_ABI_VERSION)

#endif /* DDPHOOK_RUNTIME_TEST_EXEC_ABI_TEXT_H */
