/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * The ABI version as a string literal. */

#ifndef DDPHOOK_RUNTIME_TEST_EXEC_ABI_TEXT_H
#define DDPHOOK_RUNTIME_TEST_EXEC_ABI_TEXT_H

#include "ddphook/runtime/compiled.h"

#define DDPHOOK_TEXT_OF_TOKEN(token) #token
#define DDPHOOK_TEXT_OF(macro) DDPHOOK_TEXT_OF_TOKEN(macro)

/* DDPHOOK_ABI_VERSION for the plans that tests write by hand. */
#define ABI_TEXT DDPHOOK_TEXT_OF(DDPHOOK_ABI_VERSION)

#endif /* DDPHOOK_RUNTIME_TEST_EXEC_ABI_TEXT_H */
