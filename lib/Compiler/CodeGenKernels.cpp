// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// For builds with DDPHOOK_CODEGEN=ON. The only file outside lib/CodeGen that
// includes its headers.

#include "Kernels.h"

#include "ddphook/CodeGen/PTXEmitter.h"
#include "ddphook/CodeGen/Passes.h"
#include "ddphook/Compiler/EntryPoints.h"

#include "mlir/Pass/PassManager.h"
#include "llvm/Target/TargetMachine.h"

using namespace mlir;
using namespace mlir::ddp;

void mlir::ddp::registerKernelPasses() { registerDDPCodeGenPasses(); }

void mlir::ddp::addCPUKernelPasses(OpPassManager &pm,
                                   const LLVMLoweringOptions &options) {
  DDPTileContractionsPassOptions tileOptions;
  tileOptions.vectorWidth = options.vectorWidth;
  tileOptions.vectorRegisters = options.vectorRegisters;
  pm.addNestedPass<func::FuncOp>(createDDPTileContractionsPass(tileOptions));
  pm.addNestedPass<func::FuncOp>(createDDPOrderLoopsPass());
}

namespace {
class PTXCompiler : public KernelCompiler {
public:
  explicit PTXCompiler(std::unique_ptr<llvm::TargetMachine> target)
      : target(std::move(target)) {}

  FailureOr<std::string> compile(ModuleOp module) override {
    mlir::PassManager pm(module.getContext());
    pm.addPass(createDDPOutlineGPUKernelsPass());
    pm.addNestedPass<gpu::GPUModuleOp>(createDDPExpandDeviceMathPass());
    if (failed(pm.run(module)))
      return failure();
    auto kernels = module.lookupSymbol<gpu::GPUModuleOp>(kDeviceModuleName);
    return kernels ? emitDeviceCode(kernels, *target) : std::string();
  }

private:
  std::unique_ptr<llvm::TargetMachine> target;
};
} // namespace

llvm::Expected<std::unique_ptr<KernelCompiler>>
mlir::ddp::createKernelCompiler(StringRef device, StringRef architecture) {
  if (device != "cuda")
    return nullptr;
  auto target = createDeviceTarget(architecture);
  if (!target)
    return target.takeError();
  return std::make_unique<PTXCompiler>(std::move(*target));
}
