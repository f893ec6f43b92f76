//===- Jit.h - a compiled module in this process ----------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Links the object code of a module into this process. Compiling it is
// lib/Compiler's work, running it that of runtime/exec.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_TOOLS_RUN_JIT_H
#define DDPHOOK_TOOLS_RUN_JIT_H

#include "ddphook/runtime/compiled.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <memory>

namespace llvm::orc {
class LLJIT;
} // namespace llvm::orc

namespace mlir::ddp {

/// Owns the code of one compiled module. Starts no thread: the process may
/// fork afterwards, and every child has a module of its own.
class LoadedModule {
public:
  /// Links `object`, which defines `<name>_module`. The runtime's functions are
  /// those of this program.
  static llvm::Expected<std::unique_ptr<LoadedModule>>
  load(llvm::ArrayRef<char> object, llvm::StringRef name);
  ~LoadedModule();

  const ddphook_compiled_module_t &get() const { return *module; }

private:
  LoadedModule();

  std::unique_ptr<llvm::orc::LLJIT> jit;
  const ddphook_compiled_module_t *module = nullptr;
};

} // namespace mlir::ddp

#endif // DDPHOOK_TOOLS_RUN_JIT_H
