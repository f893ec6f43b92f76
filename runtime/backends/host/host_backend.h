// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Implements the interface of backend.h with CPUs, shared memory and Gloo.

#ifndef DDPHOOK_RUNTIME_BACKENDS_HOST_HOST_BACKEND_H
#define DDPHOOK_RUNTIME_BACKENDS_HOST_HOST_BACKEND_H

#include "ddphook/runtime/backend.h"

namespace ddphook::host {

/// Returns the table of the host backend.
const ddphook_backend_t &hostBackend();

} // namespace ddphook::host

#endif // DDPHOOK_RUNTIME_BACKENDS_HOST_HOST_BACKEND_H
