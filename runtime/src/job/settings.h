// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks with different settings would wait for each other until the deadline
// and then blame each other. The handshake compares the ABI version, the world
// size, the run id and the secret, and loading a module compares plans. This
// file compares all other settings that must agree; docs/environment.md lists
// them.

#pragma once

#include "ddphook/runtime/backend.h"
#include "job/bootstrap.h"

#include <vector>

namespace ddphook {

/// Returns this rank's settings that must agree, as a text for
/// compareSettings().
std::string printSettings(const Bootstrap &place,
                          const ddphook_backend_t &backend);

/// Compares the texts of all ranks, by rank. BAD_ENVIRONMENT names the first
/// setting that differs, and both values.
Status compareSettings(const std::vector<std::string> &ofRanks);

} // namespace ddphook
