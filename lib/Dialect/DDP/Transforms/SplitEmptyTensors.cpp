// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-split-empty-tensors: undoes CSE of empty tensors. One-Shot Bufferize puts
// all writes to one empty tensor in one alias set, and compares all of these
// with each other.

#include "../Analysis/ProgramWalk.h"
#include "Utils/InPlaceChain.h"

#define GEN_PASS_DEF_DDPSPLITEMPTYTENSORSPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

/// Replaces `use` by a clone of `op`, which computes its value.
static void replaceByClone(OpOperand &use, Operation *op) {
  Operation *start = getStartOn(use);
  OpBuilder builder(start ? start : use.getOwner());
  replaceUse(use, builder.clone(*op)->getResult(0));
}

/// Gives every use but one a new empty tensor. Skips a tensor that is assembled
/// from slices. Returns true if there was anything to do.
static bool splitEmpty(tensor::EmptyOp empty) {
  if (empty->use_empty() || empty->hasOneUse() ||
      llvm::any_of(empty->getUsers(), llvm::IsaPred<tensor::ExtractSliceOp>))
    return false;
  SmallVector<OpOperand *> uses;
  for (OpOperand &use : empty->getUses())
    uses.push_back(&use);
  for (OpOperand *use : llvm::drop_begin(uses))
    // Otherwise it was replaced together with another use.
    if (use->get() == empty.getResult())
      replaceByClone(*use, empty);
  return true;
}

static bool isDestination(OpOperand &use) {
  if (auto dps = dyn_cast<DestinationStyleOpInterface>(use.getOwner()))
    return dps.isDpsInit(&use);
  return isa<scf::ForOp>(use.getOwner());
}

/// Gives every operation but one that overwrites a filled tensor a new one,
/// because filling again is cheaper than the copy needed otherwise. Returns
/// true if there was anything to do.
static bool splitFill(linalg::FillOp fill) {
  if (fill->getNumResults() != 1 || fill->hasOneUse() ||
      !fill.getOutputs().front().getDefiningOp<tensor::EmptyOp>())
    return false;
  SmallVector<OpOperand *> destinations;
  for (OpOperand &use : fill.getResult(0).getUses())
    if (isDestination(use))
      destinations.push_back(&use);
  // Uses are listed from the last to the first. The last writer keeps the
  // tensor, since it comes after most readers.
  for (OpOperand *use :
       llvm::drop_begin(destinations, destinations.empty() ? 0 : 1))
    replaceByClone(*use, fill);
  return destinations.size() > 1;
}

namespace {
struct SplitEmptyTensorsPass
    : public ddp::impl::DDPSplitEmptyTensorsPassBase<SplitEmptyTensorsPass> {
  void runOnOperation() override {
    SmallVector<linalg::FillOp> fills;
    walkProgram(getOperation(),
                [&](linalg::FillOp fill) { fills.push_back(fill); });
    bool hasChanged = false;
    for (linalg::FillOp fill : fills)
      hasChanged |= splitFill(fill);
    SmallVector<tensor::EmptyOp> empties;
    walkProgram(getOperation(),
                [&](tensor::EmptyOp empty) { empties.push_back(empty); });
    for (tensor::EmptyOp empty : empties)
      hasChanged |= splitEmpty(empty);
    if (!hasChanged)
      markAllAnalysesPreserved();
  }
};
} // namespace
