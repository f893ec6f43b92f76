// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Declares the import of PyTorch's functional collectives.

#pragma once

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace mlir::ddp {

#define GEN_PASS_DECL
#include "ddphook/Conversion/FXToDDP/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "ddphook/Conversion/FXToDDP/Passes.h.inc"

} // namespace mlir::ddp
