//===- checkpoint.h - saves and loads the states of a module ----*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddphook_state_save(), ddphook_state_load() and ddphook_state_copy() of
// runtime.h. What the files look like, and why a crash at any moment leaves a
// whole checkpoint, is in docs/checkpoints.md.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_CHECKPOINT_CHECKPOINT_H
#define DDPHOOK_RUNTIME_SRC_CHECKPOINT_CHECKPOINT_H

#include "module/module.h"

#include <string>
#include <vector>

namespace ddphook {

/// Both are collective, and change nothing on any rank if one rank fails.
Status saveStates(ddphook_module &module, const std::string &pattern,
                  uint32_t flags);
Status loadStates(ddphook_module &module, const std::string &pattern,
                  uint32_t flags, ddphook_state_info_t *info);

/// Of modules of one context, none of which is on both sides. Not collective;
/// changes nothing if it fails, unless the device does.
Status copyStates(const std::vector<ddphook_module *> &from,
                  const std::vector<ddphook_module *> &to, uint32_t flags,
                  ddphook_state_info_t *info);

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_CHECKPOINT_CHECKPOINT_H
