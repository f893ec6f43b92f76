//===- state_init.h - the states of a loaded module -------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The initial values of states, and their bytes in the host's memory: states
// may be in a device's memory. checkpoint.h handles files.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_MODULE_STATE_INIT_H
#define DDPHOOK_RUNTIME_SRC_MODULE_STATE_INIT_H

#include "module/module.h"

#include <functional>

namespace ddphook {

/// Calls `set` with the number and the first value of every state that has
/// elements and does not begin as zeros, in no particular order.
Status drawFirstValues(const Plan &plan,
                       const std::function<Status(size_t, const void *)> &set);

/// Sets the initial values of all states; the state arena holds zeros.
Status initialiseStates(ddphook_module &module);

/// Copies `bytes` bytes of a state, from `offset` on; `data` may be null where
/// there are none.
Status readState(const ddphook_module &module, size_t state, int64_t offset,
                 void *data, int64_t bytes);
Status writeState(ddphook_module &module, size_t state, int64_t offset,
                  const void *data, int64_t bytes);

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_MODULE_STATE_INIT_H
