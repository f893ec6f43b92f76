// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The last stages of ddphook-cc. Every output file is written atomically.

#pragma once

#include "ddphook/Compiler/Compiler.h"

namespace mlir::ddp {

enum class OutputKind { Object, Shared, LLVMIR, MLIR, PTX };

/// Writes `module`, which `compiler` has lowered, to `path` ("-": standard
/// output). `linker` is for shared objects (SharedObject.h).
llvm::Error writeOutput(Compiler &compiler, ModuleOp module, OutputKind kind,
                        StringRef path, StringRef linker);

} // namespace mlir::ddp
