//===- backend_loader.h - finds a backend by its name -----------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// "host" is built in; libddphook_backend_NAME.so is loaded for every other
// name.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_BACKEND_BACKEND_LOADER_H
#define DDPHOOK_RUNTIME_SRC_BACKEND_BACKEND_LOADER_H

#include "base/status.h"
#include "ddphook/runtime/backend.h"

#include <string>

namespace ddphook {

/// Gives the table of the backend `name`. A loaded library stays loaded.
/// UNSUPPORTED: no such library, one of another version, or one that lacks a
/// function.
Status loadBackend(const std::string &name, const ddphook_backend_t **backend);

/// Whether the runtime can work with the table that the library `file` gave it:
/// its version, and every function that has to be there.
Status checkBackend(const std::string &file, const ddphook_backend_t *table);

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_BACKEND_BACKEND_LOADER_H
