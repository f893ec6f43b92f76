// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks with different settings would wait for each other until the deadline
// and then blame each other. The handshake compares the ABI version, the world
// size, the run id and the secret, and loading a module compares plans. This
// compares all others, which docs/environment.md lists.

#pragma once

#include "ddphook/runtime/backend.h"
#include "job/bootstrap.h"

#include <string>
#include <vector>

namespace ddphook {

/// Returns the settings that must agree, as a text for compareSettings().
std::string printSettings(const Bootstrap &place,
                          const ddphook_backend_t &backend);

/// Compares the texts of all ranks, by rank. BAD_ENVIRONMENT names the first
/// setting that differs, and both values.
Status compareSettings(const std::vector<std::string> &ofRanks);

// A misspelled variable has no effect, and nobody notices: a user who misspells
// DDPHOOK_TIMEOUT_S still waits for five minutes.

/// Returns a line for each variable of `environment` (texts "NAME=value" and a
/// null at the end) that begins with DDPHOOK_ and has a value, but that neither
/// ddphook nor its tests and scripts read. The line suggests a similar name.
std::vector<std::string> findUnknownVariables(const char *const *environment);

/// On the first call, logs those of the process's environment.
void warnOfUnknownVariables();

} // namespace ddphook
