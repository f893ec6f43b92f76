// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-fold-branches: if all branches of an `scf.if` yield the same buffer, uses
// that buffer directly, so that views of it are found to be equal.

#include "../Analysis/ProgramWalk.h"

#include "mlir/IR/PatternMatch.h"

#define GEN_PASS_DEF_DDPFOLDBRANCHESPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

/// Replaces results that both branches leave in the same buffer by that buffer.
/// Returns true if there were any.
static bool forwardYields(scf::IfOp choice) {
  llvm::BitVector forwarded(choice.getNumResults());
  for (OpResult result : choice->getResults()) {
    unsigned number = result.getResultNumber();
    Value yielded = choice.thenYield().getOperand(number);
    if (isa<BaseMemRefType>(yielded.getType()) &&
        choice.elseYield().getOperand(number) == yielded) {
      result.replaceAllUsesWith(yielded);
      forwarded.set(number);
    }
  }
  if (forwarded.none())
    return false;
  choice.thenYield()->eraseOperands(forwarded);
  choice.elseYield()->eraseOperands(forwarded);
  IRRewriter(choice.getContext()).eraseOpResults(choice, forwarded);
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
