//===- runner.h - run a compiled module on ranks ----------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The half of ddphook-run and ddphook-exec that they share: everything after
// there is a compiled module in memory. docs/ddphook-exec.md describes what
// users see.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_EXEC_RUNNER_H
#define DDPHOOK_RUNTIME_EXEC_RUNNER_H

#include "run_options.h"

#include "ddphook/runtime/compiled.h"

namespace ddphook {

/// Prints `<toolName>: error: <message>` as one line on standard error and
/// gives the exit status for it: 2 for `isUsage`, else 1.
int reportError(const char *toolName, const Status &status,
                bool isUsage = false);

/// Runs `options.entry` of `module` and gives the program's exit status: 0; 1
/// after an error, which is printed; 128 + n after signal n. Starts the ranks
/// as processes, or joins the job when launch variables are set. No thread may
/// have been started in the calling process, and `module` stays valid and
/// unchanged until the call returns.
int runModule(const char *toolName, const ddphook_compiled_module_t &module,
              const RunOptions &options);

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_EXEC_RUNNER_H
