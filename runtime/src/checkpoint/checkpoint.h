// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Implements ddphook_state_save(), ddphook_state_load() and
// ddphook_state_copy() of runtime.h. docs/checkpoints.md describes the files
// and why a crash at any moment leaves a whole checkpoint.

#pragma once

#include "module/module.h"

#include <string>
#include <vector>

namespace ddphook {

/// Save or load states. Collective; if one rank fails, nothing changes on any.
Status saveStates(ddphook_module &module, const std::string &pattern,
                  uint32_t flags);
Status loadStates(ddphook_module &module, const std::string &pattern,
                  uint32_t flags, ddphook_state_info_t *info);

/// Copies states between modules of one context, none of which is on both
/// sides. Not collective. A failure changes nothing, unless the device failed.
Status copyStates(const std::vector<ddphook_module *> &from,
                  const std::vector<ddphook_module *> &to, uint32_t flags,
                  ddphook_state_info_t *info);

} // namespace ddphook
