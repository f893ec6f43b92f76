//===- SplitEmptyTensors.cpp -----------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-split-empty-tensors: undoes CSE of empty tensors. For One-Shot Bufferize,
// operations that write to the same empty tensor are writes to one alias set,
// and it compares all of these with each other.
//
//===----------------------------------------------------------------------===//

#include "ddphook/Dialect/DDP/Transforms/Passes.h"

namespace mlir::ddp {
#define GEN_PASS_DEF_DDPSPLITEMPTYTENSORSPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h.inc"
} // namespace mlir::ddp

using namespace mlir;
using namespace mlir::ddp;

/// Gives every use but one a new empty tensor. A tensor that is put together
/// slice by slice is not split.
static void splitEmpty(tensor::EmptyOp empty) {
  if (llvm::any_of(empty->getUsers(), llvm::IsaPred<tensor::ExtractSliceOp>))
    return;
  SmallVector<OpOperand *> uses;
  for (OpOperand &use : empty->getUses())
    uses.push_back(&use);
  if (uses.empty())
    return;
  for (OpOperand *use : llvm::drop_begin(uses)) {
    OpBuilder builder(use->getOwner());
    use->set(builder.clone(*empty)->getResult(0));
  }
}

/// Whether the operation writes over its operand, if it may.
static bool isDestination(OpOperand &use) {
  if (auto dps = dyn_cast<DestinationStyleOpInterface>(use.getOwner()))
    return dps.isDpsInit(&use);
  return isa<scf::ForOp>(use.getOwner());
}

/// Gives every operation but one that overwrites a filled tensor a new one:
/// filling again costs less than the copy that would otherwise be needed.
static void splitFill(linalg::FillOp fill) {
  if (fill->getNumResults() != 1 ||
      !fill.getOutputs().front().getDefiningOp<tensor::EmptyOp>())
    return;
  SmallVector<OpOperand *> destinations;
  for (OpOperand &use : fill.getResult(0).getUses())
    if (isDestination(use))
      destinations.push_back(&use);
  // Uses are listed from the last to the first: the last writer, which comes
  // behind most readers, keeps the tensor.
  for (OpOperand *use :
       llvm::drop_begin(destinations, destinations.empty() ? 0 : 1)) {
    OpBuilder builder(use->getOwner());
    use->set(builder.clone(*fill)->getResult(0));
  }
}

namespace {
struct SplitEmptyTensorsPass
    : public ddp::impl::DDPSplitEmptyTensorsPassBase<SplitEmptyTensorsPass> {
  using DDPSplitEmptyTensorsPassBase::DDPSplitEmptyTensorsPassBase;

  void runOnOperation() override {
    SmallVector<linalg::FillOp> fills;
    getOperation()->walk([&](linalg::FillOp fill) { fills.push_back(fill); });
    llvm::for_each(fills, splitFill);
    SmallVector<tensor::EmptyOp> empties;
    getOperation()->walk(
        [&](tensor::EmptyOp empty) { empties.push_back(empty); });
    llvm::for_each(empties, splitEmpty);
  }
};
} // namespace
