//===- variables.h - the environment variables of ddphook -------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A variable that nobody reads changes nothing, and nobody notices: whoever
// misspells DDPHOOK_TIMEOUT_S waits for five minutes all the same.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_JOB_VARIABLES_H
#define DDPHOOK_RUNTIME_SRC_JOB_VARIABLES_H

#include <string>
#include <vector>

namespace ddphook {

/// A line for each variable of `environment` (texts "NAME=value", and a null at
/// the end) that is called DDPHOOK_… and has a value, but that neither ddphook
/// nor its tests and scripts read; with the name that may have been meant.
std::vector<std::string> findUnknownVariables(const char *const *environment);

/// Logs those of the process's environment, on the first call.
void warnOfUnknownVariables();

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_JOB_VARIABLES_H
