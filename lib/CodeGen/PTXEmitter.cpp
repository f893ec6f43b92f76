// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs the conversions and LLVM's optimizer and code generator on kernels. The
// arithmetic matches the host's: bf16 is computed in f32, and products and sums
// are rounded separately.

#include "ddphook/CodeGen/PTXEmitter.h"

#include "ddphook/Compiler/Passes.h"

#include "mlir/Conversion/AffineToStandard/AffineToStandard.h"
#include "mlir/Conversion/ConvertToLLVM/ToLLVMPass.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVMPass.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVMPass.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"

using namespace mlir;

extern "C" {
void LLVMInitializeNVPTXTargetInfo();
void LLVMInitializeNVPTXTarget();
void LLVMInitializeNVPTXTargetMC();
void LLVMInitializeNVPTXAsmPrinter();
}

llvm::Expected<std::unique_ptr<llvm::TargetMachine>>
mlir::ddp::createDeviceTarget(StringRef architecture) {
  LLVMInitializeNVPTXTargetInfo();
  LLVMInitializeNVPTXTarget();
  LLVMInitializeNVPTXTargetMC();
  LLVMInitializeNVPTXAsmPrinter();
  llvm::Triple triple("nvptx64-nvidia-cuda");
  std::string message;
  const llvm::Target *description =
      llvm::TargetRegistry::lookupTarget(triple, message);
  if (!description)
    return llvm::createStringError(message);
  std::unique_ptr<llvm::MCSubtargetInfo> info(
      description->createMCSubtargetInfo(triple, "", ""));
  if (!architecture.starts_with("sm_") || !info ||
      !info->isCPUStringValid(architecture))
    return llvm::createStringError(
        "expected the architecture of a GPU, such as sm_80, but got '" +
        architecture + "'");
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  return std::unique_ptr<llvm::TargetMachine>(description->createTargetMachine(
      triple, architecture, "", options, llvm::Reloc::PIC_,
      /*CodeModel=*/std::nullopt, llvm::CodeGenOptLevel::Aggressive));
}

/// Returns the NVVM operation for a gpu.thread_id or gpu.block_id.
static Value createRegisterRead(OpBuilder &b, Location loc, bool isThread,
                                gpu::Dimension dimension) {
  Type i32 = b.getI32Type();
  switch (dimension) {
  case gpu::Dimension::x:
    return isThread ? NVVM::ThreadIdXOp::create(b, loc, i32).getResult()
                    : NVVM::BlockIdXOp::create(b, loc, i32).getResult();
  case gpu::Dimension::y:
    return isThread ? NVVM::ThreadIdYOp::create(b, loc, i32).getResult()
                    : NVVM::BlockIdYOp::create(b, loc, i32).getResult();
  case gpu::Dimension::z:
    return isThread ? NVVM::ThreadIdZOp::create(b, loc, i32).getResult()
                    : NVVM::BlockIdZOp::create(b, loc, i32).getResult();
  }
  llvm_unreachable("unknown dimension");
}

/// Copies kernels to functions of a new module. From there they are lowered
/// like the host's functions, without the calls of NVIDIA's library that
/// upstream's conversion of the gpu dialect creates.
static OwningOpRef<ModuleOp> copyToFunctions(gpu::GPUModuleOp kernels) {
  OpBuilder b(kernels.getContext());
  OwningOpRef<ModuleOp> module = ModuleOp::create(kernels.getLoc());
  for (Operation &op : *kernels.getBody()) {
    b.setInsertionPointToEnd(module->getBody());
    auto kernel = dyn_cast<gpu::GPUFuncOp>(op);
    if (!kernel) {
      b.clone(op);
      continue;
    }
    auto function = func::FuncOp::create(b, kernel.getLoc(), kernel.getName(),
                                         kernel.getFunctionType());
    IRMapping mapping;
    kernel.getBody().cloneInto(&function.getBody(), mapping);
    function.walk([&](Operation *inner) {
      b.setInsertionPoint(inner);
      auto thread = dyn_cast<gpu::ThreadIdOp>(inner);
      auto block = dyn_cast<gpu::BlockIdOp>(inner);
      if (thread || block) {
        Value number = createRegisterRead(b, inner->getLoc(), !!thread,
                                          thread ? thread.getDimension()
                                                 : block.getDimension());
        inner->getResult(0).replaceAllUsesWith(arith::IndexCastUIOp::create(
            b, inner->getLoc(), b.getIndexType(), number));
        inner->erase();
      } else if (isa<gpu::ReturnOp>(inner)) {
        func::ReturnOp::create(b, inner->getLoc());
        inner->erase();
      }
    });
  }
  return module;
}

/// Adds the passes of LowerToLLVMPipeline.cpp except those for tiles.
static void addPasses(OpPassManager &pm) {
  pm.addPass(memref::createExpandStridedMetadataPass());
  pm.addPass(createLowerAffinePass());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  pm.addPass(createSCFToControlFlowPass());
  pm.addPass(math::createMathExtendToSupportedTypes());
  arith::ArithEmulateUnsupportedFloatsOptions bf16Options;
  bf16Options.sourceTypeStrs = {"bf16"};
  bf16Options.targetTypeStr = "f32";
  pm.addPass(arith::createArithEmulateUnsupportedFloats(bf16Options));
  pm.addPass(ddp::createDDPExpandArithPass());
  pm.addPass(createConvertMathToLLVMPass());
  ConvertFuncToLLVMPassOptions functionOptions;
  functionOptions.useBarePtrCallConv = true;
  pm.addPass(createConvertFuncToLLVMPass(functionOptions));
  pm.addPass(createConvertVectorToLLVMPass());
  pm.addPass(createConvertToLLVMPass());
  pm.addPass(createReconcileUnrealizedCastsPass());
  pm.addPass(ddp::createDDPCheckLoweredPass());
}

FailureOr<std::string> mlir::ddp::emitDeviceCode(gpu::GPUModuleOp kernels,
                                                 llvm::TargetMachine &target) {
  OwningOpRef<ModuleOp> module = copyToFunctions(kernels);
  PassManager pm(module->getContext());
  addPasses(pm);
  if (failed(pm.run(*module)))
    return failure();
  for (auto kernel : kernels.getOps<gpu::GPUFuncOp>()) {
    auto function = module->lookupSymbol<LLVM::LLVMFuncOp>(kernel.getName());
    OpBuilder b(function);
    function->setAttr(NVVM::NVVMDialect::getKernelFuncAttrName(),
                      b.getUnitAttr());
    function->setAttr(NVVM::NVVMDialect::getReqntidAttrName(),
                      kernel.getKnownBlockSizeAttr());
  }
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> code =
      translateModuleToLLVMIR(*module, context, kernels.getName());
  if (!code)
    return kernels.emitError() << "cannot translate kernels to LLVM IR";
  code->setDataLayout(target.createDataLayout());
  code->setTargetTriple(target.getTargetTriple());

  llvm::LoopAnalysisManager loopAnalyses;
  llvm::FunctionAnalysisManager functionAnalyses;
  llvm::CGSCCAnalysisManager callGraphAnalyses;
  llvm::ModuleAnalysisManager moduleAnalyses;
  llvm::PassBuilder builder(&target);
  builder.registerModuleAnalyses(moduleAnalyses);
  builder.registerCGSCCAnalyses(callGraphAnalyses);
  builder.registerFunctionAnalyses(functionAnalyses);
  builder.registerLoopAnalyses(loopAnalyses);
  builder.crossRegisterProxies(loopAnalyses, functionAnalyses,
                               callGraphAnalyses, moduleAnalyses);
  builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O3)
      .run(*code, moduleAnalyses);

  llvm::SmallVector<char, 0> text;
  llvm::raw_svector_ostream os(text);
  llvm::legacy::PassManager passes;
  if (target.addPassesToEmitFile(passes, os, /*DwoOut=*/nullptr,
                                 llvm::CodeGenFileType::AssemblyFile))
    return kernels.emitError() << "LLVM cannot emit code for GPUs";
  passes.run(*code);
  return std::string(text.data(), text.size());
}
