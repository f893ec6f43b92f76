// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-fold-branches: if all branches of an `scf.if` yield the same buffer, uses
// that buffer directly, so that views of it are found to be equal.

#include "../Analysis/ProgramWalk.h"

#define GEN_PASS_DEF_DDPFOLDBRANCHESPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

/// Replaces results that both branches leave in the same buffer by that buffer.
/// Returns true if there were any.
static bool forwardYields(scf::IfOp choice) {
  if (choice.getNumResults() == 0)
    return false;
  scf::YieldOp thenYield = choice.thenYield(), elseYield = choice.elseYield();
  SmallVector<Value> thenKept, elseKept;
  SmallVector<Value> kept;
  for (OpResult result : choice->getResults()) {
    Value yielded = thenYield.getOperand(result.getResultNumber());
    Value other = elseYield.getOperand(result.getResultNumber());
    if (yielded == other && isa<BaseMemRefType>(yielded.getType())) {
      result.replaceAllUsesWith(yielded);
      continue;
    }
    kept.push_back(result);
    thenKept.push_back(yielded);
    elseKept.push_back(other);
  }
  if (kept.size() == choice.getNumResults())
    return false;
  thenYield->setOperands(thenKept);
  elseYield->setOperands(elseKept);
  OpBuilder builder(choice);
  auto smaller =
      scf::IfOp::create(builder, choice.getLoc(), TypeRange(ValueRange(kept)),
                        choice.getCondition());
  smaller->setDiscardableAttrs(choice->getDiscardableAttrDictionary());
  smaller.getThenRegion().takeBody(choice.getThenRegion());
  smaller.getElseRegion().takeBody(choice.getElseRegion());
  for (auto [old, now] : llvm::zip(kept, smaller.getResults()))
    old.replaceAllUsesWith(now);
  choice.erase();
  return true;
}

namespace {
struct FoldBranchesPass
    : public ddp::impl::DDPFoldBranchesPassBase<FoldBranchesPass> {
  void runOnOperation() override {
    bool hasChanged = false;
    walkProgram(getOperation(),
                [&](scf::IfOp choice) { hasChanged |= forwardYields(choice); });
    if (!hasChanged)
      markAllAnalysesPreserved();
  }
};
} // namespace
