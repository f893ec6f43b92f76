// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Links the object code of a module into this process. Compiler.h compiles it.
// To run it, pass it to the runtime's ddphook_module_load() (runtime.h), and
// call its entries as compiled.h describes.

#pragma once

#include "ddphook/runtime/compiled.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <memory>

namespace llvm::orc {
class LLJIT;
} // namespace llvm::orc

namespace mlir::ddp {

struct CompiledModule;

/// A function of the runtime, by its name in compiled.h.
struct RuntimeSymbol {
  const char *name;
  void *address;
};

/// Returns the functions of the runtime that this program is linked with.
/// Inline, because this library is not linked with a runtime.
inline llvm::ArrayRef<RuntimeSymbol> getLinkedRuntime() {
  static const RuntimeSymbol symbols[] = {
#define DDPHOOK_FUNCTION(name)                                                 \
  {"ddphook_rt_" #name, reinterpret_cast<void *>(&ddphook_rt_##name)},
#include "ddphook/runtime/functions.inc"
  };
  return symbols;
}

/// Owns the code of one module. Call the runtime's ddphook_module_unload()
/// before destroying this. Different threads may load modules at the same time.
/// No thread is started: the process may fork afterwards, and every child has
/// its own copy of the module.
class JitModule {
public:
  /// Links the code of a module, which need not outlive the call. Calls of the
  /// runtime use `runtime`, or functions of the process if that lacks them;
  /// other functions are the process's.
  static llvm::Expected<std::unique_ptr<JitModule>>
  load(const CompiledModule &module,
       llvm::ArrayRef<RuntimeSymbol> runtime = getLinkedRuntime());
  ~JitModule();

  /// Returns the argument of ddphook_module_load().
  const ddphook_compiled_module_t &get() const { return *module; }

  /// Returns the entry point of this name, or null.
  const ddphook_compiled_entry_t *findEntry(llvm::StringRef name) const;

private:
  JitModule();

  std::unique_ptr<llvm::orc::LLJIT> jit;
  const ddphook_compiled_module_t *module = nullptr;
};

} // namespace mlir::ddp
