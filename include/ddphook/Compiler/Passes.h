// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Declares the passes of Passes.td and the pipeline `ddp-lower-to-llvm`, which
// runs them together with upstream's conversions. Compiler.h continues to
// machine code.

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

/// Options of `ddp-lower-to-llvm`.
struct LLVMLoweringOptions : PassPipelineOptions<LLVMLoweringOptions> {
  Option<std::string> name{
      *this, "name",
      llvm::cl::desc("Emit entry points with this prefix, a C identifier "
                     "(default: none)"),
      llvm::cl::init("")};
  Option<bool> shared{
      *this, "shared",
      llvm::cl::desc("With entry points: also export the module as "
                     "`ddphook_compiled_module`"),
      llvm::cl::init(false)};
  Option<bool> hasKernels{
      *this, "has-kernels",
      llvm::cl::desc("With entry points, for a device: linalg operations have "
                     "already been turned into kernels"),
      llvm::cl::init(false)};
  Option<unsigned> vectorWidth{*this, "vector-width",
                               llvm::cl::desc("Bits of a vector register"),
                               llvm::cl::init(256)};
  Option<unsigned> vectorRegisters{*this, "vector-registers",
                                   llvm::cl::desc("Number of vector registers"),
                                   llvm::cl::init(16)};
};

/// Lowers functions on memrefs (linalg, scf, memref, arith, math …) to the LLVM
/// dialect and, if there is a name, the plan to entry points. Ends with
/// `ddp-check-lowered`.
void buildLowerToLLVMPipeline(OpPassManager &pm,
                              const LLVMLoweringOptions &options);

/// Registers by name the passes declared here, those of lib/CodeGen if it was
/// built, and `ddp-lower-to-llvm`.
void registerCompilerPasses();

} // namespace mlir::ddp

#endif // DDPHOOK_COMPILER_PASSES_H

// A file that defines a pass includes this header after GEN_PASS_DEF_<PASS>.
namespace mlir::ddp {
#include "ddphook/Compiler/Passes.h.inc"
} // namespace mlir::ddp
