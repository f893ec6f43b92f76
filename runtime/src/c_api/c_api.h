// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Converts a Status of the runtime to the ddphook_status_t of the C ABI, and
// keeps exceptions inside.

#pragma once

#include "job/context.h"
#include "module/module.h"

#include <memory>

/// The target of a context's handle.
struct ddphook_context {
  std::unique_ptr<ddphook::Context> impl;
};

namespace ddphook {

/// Keeps a failure's message for ddphook_last_error(). Returns the code.
ddphook_status_t publishStatus(const Status &status);

/// Runs the body of a public function, which returns a Status.
template <typename Function>
ddphook_status_t publish(Function &&function) {
  return publishStatus(withoutExceptions(std::forward<Function>(function)));
}

inline Status nullArgument(const char *name) {
  return invalid("expected %s, but got a null pointer", name);
}

inline Status notLoaded() {
  return error(DDPHOOK_FAILED_PRECONDITION, "the module is not loaded");
}

/// Runs the body of a public function with a context. All ranks call it: see
/// Context::failIfThrown().
template <typename Function>
ddphook_status_t publish(ddphook_context_t *context, Function &&function) {
  if (!context)
    return publishStatus(nullArgument("a context"));
  Context &impl = *context->impl;
  return publishStatus(impl.failIfThrown([&] { return function(impl); }));
}

/// Does the same for a function of a module; null means that it is not loaded.
template <typename Function>
ddphook_status_t publish(ddphook_module_t *module, Function &&function) {
  if (!module)
    return publishStatus(notLoaded());
  return publishStatus(
      module->context.failIfThrown([&] { return function(*module); }));
}

/// Returns a compiled module's loaded module, or null.
inline ddphook_module *moduleOf(const ddphook_compiled_module_t *module) {
  return module && module->handle ? *module->handle : nullptr;
}

} // namespace ddphook
