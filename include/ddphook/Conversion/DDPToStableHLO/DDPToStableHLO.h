// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Declares the export to XLA.

#pragma once

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace mlir::ddp {

#define GEN_PASS_DECL
#include "ddphook/Conversion/DDPToStableHLO/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "ddphook/Conversion/DDPToStableHLO/Passes.h.inc"

} // namespace mlir::ddp
