// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Declares the passes of Passes.td.

#ifndef DDPHOOK_CODEGEN_PASSES_H
#define DDPHOOK_CODEGEN_PASSES_H

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace mlir::ddp {

#define GEN_PASS_DECL
#include "ddphook/CodeGen/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "ddphook/CodeGen/Passes.h.inc"

} // namespace mlir::ddp

#endif // DDPHOOK_CODEGEN_PASSES_H

// A file that defines a pass includes this header after GEN_PASS_DEF_<PASS>.
namespace mlir::ddp {
#include "ddphook/CodeGen/Passes.h.inc"
} // namespace mlir::ddp
