//===- Passes.h - passes from the pipeline's result to LLVM -----*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Declares the passes of Passes.td and the pipeline `ddp-lower-to-llvm`, which
// runs them together with upstream's conversions. Compiler.h turns a module
// into an object file.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_COMPILER_PASSES_H
#define DDPHOOK_COMPILER_PASSES_H

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
#include "mlir/Pass/PassOptions.h"

namespace mlir::ddp {

#define GEN_PASS_DECL
#include "ddphook/Compiler/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "ddphook/Compiler/Passes.h.inc"

/// Options of `ddp-lower-to-llvm`: the shape of the target's vector registers.
struct LLVMLoweringOptions : PassPipelineOptions<LLVMLoweringOptions> {
  Option<unsigned> vectorWidth{*this, "vector-width",
                               llvm::cl::desc("Bits of a vector register"),
                               llvm::cl::init(256)};
  Option<unsigned> vectorRegisters{*this, "vector-registers",
                                   llvm::cl::desc("Number of vector registers"),
                                   llvm::cl::init(16)};
};

/// Lowers functions on memrefs (linalg, scf, memref, arith, math …) to the LLVM
/// dialect; ends with `ddp-check-lowered`.
void buildLowerToLLVMPipeline(OpPassManager &pm,
                              const LLVMLoweringOptions &options);

/// Registers by name the passes declared here, those of lib/CodeGen if it was
/// built, and `ddp-lower-to-llvm`.
void registerCompilerPasses();

} // namespace mlir::ddp

#endif // DDPHOOK_COMPILER_PASSES_H
