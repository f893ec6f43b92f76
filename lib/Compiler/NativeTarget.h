// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiling and linking both need it, in any order and from any thread.

#pragma once

#include "llvm/Support/TargetSelect.h"

namespace mlir::ddp {

/// Registers the machine's architecture with LLVM once per process, because
/// LLVM's registry is not locked. Also registers all targets' names: LLD would
/// add them on its first run, while another thread may read the registry.
inline void initializeTargets() {
  static const bool isDone = [] {
    llvm::InitializeAllTargetInfos();
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    return true;
  }();
  (void)isDone;
}

} // namespace mlir::ddp
