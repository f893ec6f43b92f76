// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The common part of ddphook-run and ddphook-exec: everything after a compiled
// module is in memory. docs/ddphook-exec.md describes the user's view.

#pragma once

#include "run_options.h"

#include "ddphook/runtime/compiled.h"

namespace ddphook {

/// Prints `<toolName>: error: <message>` as one line on standard error and
/// returns the exit status for it: 2 for `isUsage`, else 1.
int reportError(const char *toolName, const Status &status,
                bool isUsage = false);

/// Runs `options.entry` of `module` and returns the program's exit status: 0; 1
/// after an error, which is printed; 128 + n after signal n. Starts the ranks
/// as processes, or joins the job if launch variables are set. The calling
/// process must not have started a thread, and `module` must stay valid and
/// unchanged until the call returns.
int runModule(const char *toolName, const ddphook_compiled_module_t &module,
              const RunOptions &options);

} // namespace ddphook
