// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Implements the interface of backend.h with CPUs, shared memory and Gloo.

#pragma once

#include "ddphook/runtime/backend.h"

namespace ddphook::host {

const ddphook_backend_t &hostBackend();

} // namespace ddphook::host
