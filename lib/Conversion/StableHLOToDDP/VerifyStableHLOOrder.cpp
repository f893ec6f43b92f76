// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-verify-stablehlo-order: runs ddp-verify-order on programs that stay in
// StableHLO. It works on a copy, converted to operations that MLIR knows.

#include "StableHLO.h"
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

#include "mlir/Transforms/Passes.h"
#include "mlir/Transforms/RegionUtils.h"

#define GEN_PASS_DEF_DDPVERIFYSTABLEHLOORDERPASS
#include "ddphook/Conversion/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

/// Replaces `op` by a cast that keeps only its data dependencies.
static void forgetComputation(Operation *op) {
  SetVector<Value> sources(op->operand_begin(), op->operand_end());
  getUsedValuesDefinedAbove(op->getRegions(), sources);
  OpBuilder builder(op);
  if (!sources.empty()) {
    op->replaceAllUsesWith(UnrealizedConversionCastOp::create(
        builder, op->getLoc(), op->getResultTypes(), sources.getArrayRef()));
  } else {
    // A constant or an iota: equal on all ranks.
    for (Value result : op->getResults())
      result.replaceAllUsesWith(
          ub::PoisonOp::create(builder, op->getLoc(), result.getType()));
  }
  op->erase();
}

namespace {
struct VerifyStableHLOOrderPass
    : public ddp::impl::DDPVerifyStableHLOOrderPassBase<
          VerifyStableHLOOrderPass> {
  void runOnOperation() override {
    markAllAnalysesPreserved();
    OwningOpRef<ModuleOp> copy(getOperation().clone());
    if (failed(convertStableHLOControlFlow(*copy)))
      return signalPassFailure();
    SmallVector<Operation *> computations;
    copy->walk<WalkOrder::PreOrder>([&](Operation *op) {
      if (!isComputation(op))
        return WalkResult::advance();
      computations.push_back(op);
      return WalkResult::skip();
    });
    llvm::for_each(computations, forgetComputation);
    PassManager pm(&getContext());
    // Inlined JAX functions are still there, but no rank runs them.
    pm.addPass(createSymbolDCEPass());
    pm.addPass(createDDPVerifyOrderPass());
    if (failed(pm.run(*copy)))
      signalPassFailure();
  }
};
} // namespace
