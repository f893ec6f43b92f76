// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// test-emulate-kernels: lets a module for a device run on the host, kernels
// included, so that tests execute what threads compute where there is no GPU. A
// launch becomes a loop over all blocks and threads; there are no barriers.

#include "EmulateKernels.h"

#include "ddphook/Dialect/DDP/IR/Plan.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Pass/Pass.h"

using namespace mlir;

namespace {
/// Number of a thread's or block's coordinate among a function's last
/// arguments.
unsigned getCoordinate(bool isThread, gpu::Dimension dimension) {
  return (isThread ? 3 : 0) + static_cast<unsigned>(dimension);
}

class EmulateKernelsPass
    : public PassWrapper<EmulateKernelsPass, OperationPass<ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(EmulateKernelsPass)

  EmulateKernelsPass() = default;
  EmulateKernelsPass(const EmulateKernelsPass &other) : PassWrapper(other) {}

  StringRef getArgument() const override { return "test-emulate-kernels"; }
  StringRef getDescription() const override {
    return "make host functions of kernels, and loops of their launches";
  }
  void getDependentDialects(DialectRegistry &registry) const override {
    registry.insert<arith::ArithDialect, func::FuncDialect, scf::SCFDialect>();
  }

  void runOnOperation() override {
    SmallVector<gpu::GPUModuleOp> modules(
        getOperation().getOps<gpu::GPUModuleOp>());
    for (gpu::GPUModuleOp module : modules)
      for (Operation &op : *module.getBody())
        if (auto kernel = dyn_cast<gpu::GPUFuncOp>(op);
            kernel && failed(makeFunction(kernel)))
          return signalPassFailure();
    getOperation().walk([&](gpu::LaunchFuncOp launch) { emulate(launch); });
    for (gpu::GPUModuleOp module : modules)
      module.erase();
    getOperation()->removeAttr(gpu::GPUDialect::getContainerModuleAttrName());
    moveArraysToHost();
  }

private:
  LogicalResult makeFunction(gpu::GPUFuncOp kernel) {
    OpBuilder b = OpBuilder::atBlockEnd(getOperation().getBody());
    SmallVector<Type> types(kernel.getArgumentTypes());
    types.append(6, b.getIndexType());
    auto function = func::FuncOp::create(b, kernel.getLoc(), kernel.getName(),
                                         b.getFunctionType(types, {}));
    function.setPrivate();
    IRMapping mapping;
    kernel.getBody().cloneInto(&function.getBody(), mapping);
    Block &entry = function.getBody().front();
    unsigned first = entry.getNumArguments();
    for (unsigned i = 0; i < 6; ++i)
      entry.addArgument(b.getIndexType(), kernel.getLoc());
    LogicalResult result = success();
    function.walk([&](Operation *op) {
      if (auto thread = dyn_cast<gpu::ThreadIdOp>(op)) {
        op->getResult(0).replaceAllUsesWith(entry.getArgument(
            first + getCoordinate(true, thread.getDimension())));
      } else if (auto block = dyn_cast<gpu::BlockIdOp>(op)) {
        op->getResult(0).replaceAllUsesWith(entry.getArgument(
            first + getCoordinate(false, block.getDimension())));
      } else if (isa<gpu::ReturnOp>(op)) {
        b.setInsertionPoint(op);
        func::ReturnOp::create(b, op->getLoc());
      } else {
        if (isa_and_present<gpu::GPUDialect>(op->getDialect()))
          result = op->emitOpError() << "cannot be emulated";
        return;
      }
      op->erase();
    });
    return result;
  }

  /// Blocks and threads run backwards unless told otherwise. Where one of them
  /// needs what another one writes, one of the two orders shows it.
  void emulate(gpu::LaunchFuncOp launch) {
    OpBuilder b(launch);
    Location loc = launch.getLoc();
    gpu::KernelDim3 grid = launch.getGridSizeOperandValues();
    gpu::KernelDim3 block = launch.getBlockSizeOperandValues();
    Value zero = arith::ConstantIndexOp::create(b, loc, 0);
    Value one = arith::ConstantIndexOp::create(b, loc, 1);
    SmallVector<Value> operands(launch.getKernelOperands());
    for (Value size : {grid.x, grid.y, grid.z, block.x, block.y, block.z}) {
      auto loop = scf::ForOp::create(b, loc, zero, size, one);
      b.setInsertionPointToStart(loop.getBody());
      Value number = loop.getInductionVar();
      if (!forwards) {
        Value last = arith::SubIOp::create(b, loc, size, one);
        number = arith::SubIOp::create(b, loc, last, number);
      }
      operands.push_back(number);
    }
    func::CallOp::create(b, loc, launch.getKernelName().getValue(), TypeRange(),
                         operands);
    launch.erase();
  }

  Option<bool> forwards{*this, "forwards",
                        llvm::cl::desc("run the first thread first")};

  void moveArraysToHost() {
    if (ddp::PlanAttr plan = ddp::getPlan(getOperation()))
      getOperation()->setAttr(ddp::DDPDialect::kPlanAttrName,
                              plan.cloneWith(ddp::ArrayMemory::Host, {}));
  }
};
} // namespace

void testhook::registerEmulateKernelsPass() {
  PassRegistration<EmulateKernelsPass>();
}
