// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Orders the conversions from memrefs to the LLVM dialect. They run without
// pattern rollback, with which a function of ten thousand loops runs out of
// memory.

#include "Kernels.h"
#include "ddphook/Pipelines/Pipelines.h"

#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/Linalg/Passes.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Pass/PassRegistry.h"

using namespace mlir;

void mlir::ddp::buildLowerToLLVMPipeline(OpPassManager &pm,
                                         const LLVMLoweringOptions &options) {
  if (!options.name.empty()) {
    DDPCheckDeviceMemoryPassOptions checkOptions;
    checkOptions.hasKernels = options.hasKernels;
    pm.addPass(createDDPCheckDeviceMemoryPass(checkOptions));
    DDPEmitEntryPointsPassOptions entryOptions;
    entryOptions.name = options.name;
    entryOptions.shared = options.shared;
    pm.addPass(createDDPEmitEntryPointsPass(entryOptions));
  }
  pm.addPass(createDDPCheckMPIPass());
  pm.addNestedPass<func::FuncOp>(createDDPExpandCopiesPass());
  pm.addPass(createDDPOutlineLinalgOpsPass());
  addCPUKernelPasses(pm, options);
  pm.addNestedPass<func::FuncOp>(createConvertLinalgToLoopsPass());

  // Transfers of vectors from strided memory become loops: LLVM loads and
  // stores contiguous vectors only.
  pm.addPass(createConvertVectorToSCFPass());
  pm.addPass(memref::createExpandStridedMetadataPass());
  pm.addPass(createLowerAffinePass());
  SCFToControlFlowPassOptions controlFlowOptions;
  controlFlowOptions.allowPatternRollback = false;
  pm.addPass(createSCFToControlFlowPass(controlFlowOptions));
  // LLVM would call __truncsfbf2, which older compilers' libraries lack, or use
  // an instruction that flushes subnormal numbers. So bf16 is computed in f32
  // and rounded by integer operations.
  pm.addPass(math::createMathExtendToSupportedTypes());
  arith::ArithEmulateUnsupportedFloatsOptions bf16Options;
  bf16Options.sourceTypeStrs = {"bf16"};
  bf16Options.targetTypeStr = "f32";
  pm.addPass(arith::createArithEmulateUnsupportedFloats(bf16Options));
  pm.addPass(createDDPExpandArithPass());
  // Functions without an LLVM intrinsic become calls of the math library.
  pm.addPass(createConvertMathToLLVMPass());
  pm.addPass(createConvertMathToLibmPass());
  pm.addPass(createConvertVectorToLLVMPass());
  ConvertToLLVMPassOptions llvmOptions;
  llvmOptions.allowPatternRollback = false;
  pm.addPass(createConvertToLLVMPass(llvmOptions));
  pm.addPass(createReconcileUnrealizedCastsPass());
  pm.addPass(createDDPCheckLoweredPass());
}

void mlir::ddp::registerCompilerPasses() {
  registerDDPCompilerPasses();
  registerKernelPasses();
  constexpr StringLiteral name = "ddp-lower-to-llvm";
  registerPassPipeline(
      name,
      "Lower functions on memrefs to the LLVM dialect and, if a name is given, "
      "the plan to entry points",
      [name](OpPassManager &pm, StringRef text,
             function_ref<LogicalResult(const Twine &)> errorHandler) {
        LLVMLoweringOptions options;
        if (failed(checkRunsOnModules(pm, name, errorHandler)) ||
            failed(options.parseFromString(text)))
          return failure();
        buildLowerToLLVMPipeline(pm, options);
        return success();
      },
      [](function_ref<void(const mlir::detail::PassOptions &)> optHandler) {
        optHandler(LLVMLoweringOptions());
      });
}
