// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes the declarations that a program needs to call a compiled module.

#pragma once

#include "ddphook/Compiler/EntryPoints.h"

#include "llvm/Support/raw_ostream.h"

namespace mlir::ddp {

/// Writes the C header (also valid C++) of the module `name`: a function for
/// each entry point, with the element types and shapes of its buffers, and the
/// constant for ddphook_module_load(). The first line names `source`.
void writeHeader(llvm::raw_ostream &os, StringRef name, StringRef source,
                 const EntryPointTable &table);

} // namespace mlir::ddp
