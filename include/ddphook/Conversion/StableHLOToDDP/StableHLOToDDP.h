// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Declares the import of StableHLO's collectives. The passes know the
// operations by name: they need no StableHLO library, and also work if one is
// registered.

#pragma once

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace mlir::ddp {

#define GEN_PASS_DECL
#include "ddphook/Conversion/StableHLOToDDP/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "ddphook/Conversion/StableHLOToDDP/Passes.h.inc"

} // namespace mlir::ddp
