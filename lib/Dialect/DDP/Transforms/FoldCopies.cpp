// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-fold-copies: removes copies of a buffer onto itself. A general
// canonicalization would too, at ten times the cost for many gradients.

#include "../Analysis/ProgramWalk.h"

#define GEN_PASS_DEF_DDPFOLDCOPIESPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

/// True if two memrefs are certainly equal views of the same memory.
static bool isSameBuffer(Value a, Value b) {
  if (a == b)
    return true;
  auto viewA = a.getDefiningOp<ViewOp>(), viewB = b.getDefiningOp<ViewOp>();
  return viewA && viewB && viewA.getSource() == viewB.getSource() &&
         viewA.getOffset() == viewB.getOffset() &&
         viewA.getType() == viewB.getType();
}

namespace {
struct FoldCopiesPass
    : public ddp::impl::DDPFoldCopiesPassBase<FoldCopiesPass> {
  void runOnOperation() override {
    SmallVector<Operation *> copies, views;
    walkProgram(getOperation(), [&](Operation *op) {
      auto copy = dyn_cast<memref::CopyOp>(op);
      if (copy && isSameBuffer(copy.getSource(), copy.getTarget()))
        copies.push_back(op);
      else if (isa<ViewOp>(op))
        views.push_back(op);
    });
    for (Operation *copy : copies)
      copy->erase();
    size_t numErased = copies.size();
    for (Operation *view : views)
      if (view->use_empty()) {
        view->erase();
        ++numErased;
      }
    if (numErased == 0)
      markAllAnalysesPreserved();
  }
};
} // namespace
