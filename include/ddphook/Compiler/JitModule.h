//===- JitModule.h - a compiled module in this process ----------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Links the object code of a module into this process. Compiling it is
// Compiler.h's work. To run it, give it to the runtime, ddphook_module_load()
// of runtime.h, and call its entries, as compiled.h describes them.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_COMPILER_JITMODULE_H
#define DDPHOOK_COMPILER_JITMODULE_H

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

/// A function of the runtime, by the name that compiled.h declares.
struct RuntimeSymbol {
  const char *name;
  void *address;
};

/// The functions of the runtime that this program is linked with. Inline: this
/// library is linked with none.
inline llvm::ArrayRef<RuntimeSymbol> getLinkedRuntime() {
  static const RuntimeSymbol symbols[] = {
#define DDPHOOK_FUNCTION(name)                                                 \
  {"ddphook_rt_" #name, reinterpret_cast<void *>(&ddphook_rt_##name)},
#include "ddphook/runtime/functions.inc"
  };
  return symbols;
}

/// Owns the code of one module. Unload what the runtime made of it,
/// ddphook_module_unload(), before this is destroyed. Different threads may
/// load modules at the same time. No thread is started: the process may fork
/// afterwards, and every child has a module of its own.
class JitModule {
public:
  /// Links the code of a module, which may be gone afterwards. Calls of the
  /// runtime go to `runtime`, and to what the process has of these names where
  /// that lacks one; other functions are the process's.
  static llvm::Expected<std::unique_ptr<JitModule>>
  load(const CompiledModule &module,
       llvm::ArrayRef<RuntimeSymbol> runtime = getLinkedRuntime());
  ~JitModule();

  /// What ddphook_module_load() takes.
  const ddphook_compiled_module_t &get() const { return *module; }

  /// The entry point of this name, or null.
  const ddphook_compiled_entry_t *findEntry(llvm::StringRef name) const;

private:
  JitModule();

  std::unique_ptr<llvm::orc::LLJIT> jit;
  const ddphook_compiled_module_t *module = nullptr;
};

} // namespace mlir::ddp

#endif // DDPHOOK_COMPILER_JITMODULE_H
