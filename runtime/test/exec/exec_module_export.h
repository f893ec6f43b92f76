/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * The end of a file that has defined `plan`, `handle` and `entries`: the table
 * that ddphook-exec looks for. */

#ifndef DDPHOOK_RUNTIME_TEST_EXEC_EXEC_MODULE_EXPORT_H
#define DDPHOOK_RUNTIME_TEST_EXEC_EXEC_MODULE_EXPORT_H

#include <stddef.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

extern ddphook_compiled_module_t ddphook_compiled_module;
ddphook_compiled_module_t ddphook_compiled_module = {
    sizeof(ddphook_compiled_module_t),
    DDPHOOK_ABI_VERSION,
    plan,
    sizeof(plan) - 1,
    0,
    &handle,
    sizeof(entries) / sizeof(entries[0]),
    entries,
    NULL,
    0,
};

/// The compiler writes the hash as a constant; here it is made at load time.
__attribute__((constructor)) static void setHash(void) {
  ddphook_compiled_module.plan_hash = XXH3_64bits(plan, sizeof(plan) - 1);
}

#endif /* DDPHOOK_RUNTIME_TEST_EXEC_EXEC_MODULE_EXPORT_H */
