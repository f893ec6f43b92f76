// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Declares the conversion. ddphook/Dialect/DDP/IR/Plan.h describes what it
// leaves in the module for the code that emits an object file.

#pragma once

#include "ddphook/Dialect/DDP/IR/Plan.h"

#include "mlir/Pass/Pass.h"

namespace mlir::ddp {

#define GEN_PASS_DECL
#include "ddphook/Conversion/DDPToRuntime/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "ddphook/Conversion/DDPToRuntime/Passes.h.inc"

} // namespace mlir::ddp
