// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A misspelled variable has no effect, and nobody notices: a user who misspells
// DDPHOOK_TIMEOUT_S still waits for five minutes.

#pragma once

#include <string>
#include <vector>

namespace ddphook {

/// Returns a line for each variable of `environment` (texts "NAME=value" and a
/// null at the end) that begins with DDPHOOK_ and has a value, but that neither
/// ddphook nor its tests and scripts read. The line suggests a similar name.
std::vector<std::string> findUnknownVariables(const char *const *environment);

/// On the first call, logs those of the process's environment.
void warnOfUnknownVariables();

} // namespace ddphook
