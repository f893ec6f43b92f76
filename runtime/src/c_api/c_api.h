//===- c_api.h - what the files of the C ABI share --------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Converts a Status of the runtime to the ddphook_status_t of the C ABI, which
// no exception crosses.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_C_API_C_API_H
#define DDPHOOK_RUNTIME_SRC_C_API_C_API_H

#include "job/context.h"
#include "module/module.h"

#include <memory>
#include <string>

/// What a context's handle points to.
struct ddphook_context {
  std::unique_ptr<ddphook::Context> impl;
};

namespace ddphook {

/// The text of ddphook_last_error() on this thread.
std::string &lastError();

/// Runs the body of a public function, which gives a Status, and keeps its
/// message for ddphook_last_error().
template <typename Function>
ddphook_status_t publish(Function &&function) {
  Status status = withoutExceptions(std::forward<Function>(function));
  if (!status.isOk())
    lastError() = status.message();
  return status.code();
}

inline Status nullArgument(const char *name) {
  return error(DDPHOOK_INVALID_ARGUMENT, "expected %s, but got a null pointer",
               name);
}

inline Status notLoaded() {
  return error(DDPHOOK_FAILED_PRECONDITION, "the module is not loaded");
}

/// The module of a compiled module's handle; null when it is not loaded.
inline ddphook_module *moduleOf(const ddphook_compiled_module_t *module) {
  return module && module->handle ? *module->handle : nullptr;
}

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_C_API_C_API_H
