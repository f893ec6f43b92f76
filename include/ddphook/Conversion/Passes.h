// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Declares the passes of Passes.td. Those on StableHLO know its operations by
// name: they need no StableHLO library, and also work if one is registered.
// ddphook/Dialect/DDP/IR/Plan.h describes what the conversion to the runtime
// leaves in the module for the code that emits an object file.

#ifndef DDPHOOK_CONVERSION_PASSES_H
#define DDPHOOK_CONVERSION_PASSES_H

#include "ddphook/Dialect/DDP/IR/Plan.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/UB/IR/UBOps.h"
#include "mlir/Pass/Pass.h"

namespace mlir::ddp {

#define GEN_PASS_DECL
#include "ddphook/Conversion/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "ddphook/Conversion/Passes.h.inc"

} // namespace mlir::ddp

#endif // DDPHOOK_CONVERSION_PASSES_H

// A file that defines a pass includes this header after GEN_PASS_DEF_<PASS>.
namespace mlir::ddp {
#include "ddphook/Conversion/Passes.h.inc"
} // namespace mlir::ddp
