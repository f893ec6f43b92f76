// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// test-reduce-results: averages the results of public functions over all ranks.
// Stands for a front end that is somebody else's and comes as a plugin.

#include "ReduceResults.h"

#include "ddphook/Dialect/DDP/IR/DDP.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassRegistry.h"

using namespace mlir;
using namespace testhook;

namespace {
struct ReduceResultsPass
    : public PassWrapper<ReduceResultsPass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ReduceResultsPass)

  StringRef getArgument() const override { return "test-reduce-results"; }
  StringRef getDescription() const override {
    return "Average the results of public functions over all ranks";
  }
  void getDependentDialects(DialectRegistry &registry) const override {
    registry.insert<ddp::DDPDialect>();
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    OpBuilder builder = OpBuilder::atBlockBegin(module.getBody());
    auto group =
        ddp::ProcessGroupOp::create(builder, module.getLoc(), "everybody");
    module.walk([&](func::ReturnOp op) {
      if (!op->getParentOfType<func::FuncOp>().isPublic())
        return;
      builder.setInsertionPoint(op);
      for (OpOperand &operand : op->getOpOperands())
        operand.set(
            ddp::AllReduceOp::create(builder, op.getLoc(), operand.get(), group)
                .getResult());
    });
  }
};
} // namespace

void testhook::registerReduceResultsPass() {
  PassRegistration<ReduceResultsPass>();
}
