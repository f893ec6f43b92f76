// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// "host" is built in; all others are in libddphook_backend_NAME.so.

#pragma once

#include "base/status.h"
#include "ddphook/runtime/backend.h"

#include <string>

namespace ddphook {

/// Loads the table of the backend `name`. A library stays loaded. UNSUPPORTED
/// if there is no such library, it has another version, or it lacks a function.
Status loadBackend(const std::string &name, const ddphook_backend_t **backend);

/// Checks that the runtime can use the table of the library `file`: its
/// version, and that it has every function.
Status checkBackend(const std::string &file, const ddphook_backend_t *table);

} // namespace ddphook
