// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns a compiled module's description into a module that can run steps:
// checks it, compares the plan with all ranks, allocates memory, and connects
// process groups.

#ifndef DDPHOOK_RUNTIME_SRC_MODULE_MODULE_LOADER_H
#define DDPHOOK_RUNTIME_SRC_MODULE_MODULE_LOADER_H

#include "ddphook/runtime/compiled.h"
#include "job/context.h"

namespace ddphook {

/// Loads `compiled` and sets its handle; collective. If any rank fails, all do:
/// PLAN_MISMATCH if plans differ, ABORTED if only another rank failed.
Status loadModule(Context &context, const ddphook_compiled_module_t *compiled);

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_MODULE_MODULE_LOADER_H
