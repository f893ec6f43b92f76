// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Initial values of states, and access to their bytes, which may be in device
// memory. checkpoint.h handles files.

#pragma once

#include "module/module.h"

#include <functional>

namespace ddphook {

/// Calls `set` with the number and the initial value of every state that has
/// elements and does not start as zeros, in no particular order.
Status drawFirstValues(const Plan &plan,
                       const std::function<Status(size_t, const void *)> &set);

/// Sets the initial values of all states; the state arena must be zeroed.
Status initialiseStates(ddphook_module &module);

/// Copy `bytes` bytes of a state, from `offset` on; `data` may be null if
/// `bytes` is 0.
Status readState(const ddphook_module &module, size_t state, int64_t offset,
                 void *data, int64_t bytes);
Status writeState(ddphook_module &module, size_t state, int64_t offset,
                  const void *data, int64_t bytes);

} // namespace ddphook
