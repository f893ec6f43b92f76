//===- HoistFromBranches.cpp -----------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes conditional starts of the all-reduces with which a branch begins, such
// as those of PowerSGD's vanilla phase.
//
//===----------------------------------------------------------------------===//

#include "HoistFromBranches.h"

#include "../../Analysis/Dependences.h"

using namespace mlir;
using namespace mlir::ddp;

/// Whether nothing needs the memory of `value` once `op`, in the then branch of
/// `choice`, has reduced it in its place, but the other branch, which does not
/// run then.
static bool isOver(Value value, AllReduceOp op, scf::IfOp choice) {
  return !visitUsesOfParts(getWhole(value), [&](OpOperand &use) {
            Operation *user = use.getOwner();
            if (use.get() == value &&
                (user == op ||
                 choice.getElseRegion().isAncestor(user->getParentRegion())))
              return WalkResult::skip();
            Operation *inBlock =
                choice->getBlock()->findAncestorOpInBlock(*user);
            return inBlock && inBlock != choice &&
                           inBlock->isBeforeInBlock(choice)
                       ? WalkResult::advance()
                       : WalkResult::interrupt();
          }).wasInterrupted();
}

/// Whether a load gives the same at the beginning of its block.
static bool isLoadOfFirstContents(LoadOp load) {
  for (Operation &op : *load->getBlock()) {
    if (&op == load)
      return true;
    Effects effects = getEffects(&op);
    const void *state = load.getStateAttr().getAttr().getAsOpaquePointer();
    if (effects.isUnknown || llvm::any_of(effects.accesses, [&](Access access) {
          return access.isWrite && access.what == state;
        }))
      return false;
  }
  return false;
}

/// Collects what computes a condition, the operands' operations first; false if
/// it cannot stand at the beginning of the block.
static bool collect(Value value, Block *block,
                    llvm::SetVector<Operation *> &slice, unsigned depth = 8) {
  Operation *op = value.getDefiningOp();
  if (!op || op->getBlock() != block)
    return op || value.getParentBlock() == block ||
           !block->getParentOp()->isAncestor(
               value.getParentBlock()->getParentOp());
  auto load = dyn_cast<LoadOp>(op);
  bool isMovable = load ? isLoadOfFirstContents(load)
                        : isMemoryEffectFree(op) && op->getNumRegions() == 0;
  if (depth == 0 || !isMovable ||
      !llvm::all_of(op->getOperands(), [&](Value operand) {
        return collect(operand, block, slice, depth - 1);
      }))
    return false;
  slice.insert(op);
  return true;
}

/// Lets the condition be known from the beginning of the block, if it can be:
/// buckets may be complete long before the place where it was computed.
static void hoistCondition(scf::IfOp choice) {
  Block *block = choice->getBlock();
  llvm::SetVector<Operation *> slice;
  if (!collect(choice.getCondition(), block, slice))
    return;
  for (Operation *op : llvm::reverse(slice))
    op->moveBefore(block, block->begin());
}

/// Whether `value` is complete where `choice` stands: nothing that takes time
/// is between the two.
static bool isJustComplete(Value value, scf::IfOp choice,
                           function_ref<bool(Operation *)> takesTime) {
  llvm::SmallPtrSet<Operation *, 8> makers;
  if (auto pack = value.getDefiningOp<PackOp>())
    for (Value operand : pack->getOperands())
      makers.insert(operand.getDefiningOp());
  else
    makers.insert(value.getDefiningOp());
  for (Operation *op = choice->getPrevNode(); op; op = op->getPrevNode()) {
    if (makers.contains(op))
      return true;
    if (takesTime(op))
      return false;
  }
  return true;
}

/// Whether something that takes time and does without the results of `choice`
/// comes behind it.
static bool hasWorkBehind(scf::IfOp choice,
                          function_ref<bool(Operation *)> takesTime) {
  llvm::DenseSet<Value> dependent(llvm::from_range, choice.getResults());
  for (Operation *op = choice->getNextNode(); op; op = op->getNextNode()) {
    bool isDependent = false;
    forEachUse(op, [&](Value value, bool) {
      isDependent |= dependent.contains(value);
    });
    if (isDependent)
      dependent.insert_range(op->getResults());
    else if (takesTime(op) && !op->hasTrait<OpTrait::IsTerminator>())
      return true;
  }
  return false;
}

/// The reduction of a branch that does nothing else, or null.
static AllReduceOp getOnlyReduction(scf::IfOp choice) {
  auto op = dyn_cast<AllReduceOp>(choice.thenBlock()->front());
  return op && choice.getNumResults() == 1 &&
                 op->getNextNode() == choice.thenYield() &&
                 choice.thenYield().getOperand(0) == op.getResult() &&
                 op.getInput().getType() == op.getResult().getType()
             ? op
             : AllReduceOp();
}

/// Makes `choice` and the reduction of its first branch one after the other:
/// what the other branch does keeps its place, in which the bucket is in the
/// cache, and is what the wait gives where nothing is started.
static void startBehind(scf::IfOp choice, AllReduceOp op) {
  OpBuilder builder(choice->getContext());
  builder.setInsertionPointAfter(choice);
  Location loc = op.getLoc();
  Value result = choice.getResult(0);
  auto start = AllReduceStartOp::create(
      builder, loc, FutureType::get(builder.getContext(), result.getType()),
      op.getReductionAttr(), result, op.getGroupAttr(), op.getWireAttr(),
      op.getStep(), op.getBucketNameAttr(), choice.getCondition());
  setErrorState(start, getErrorState(op));
  auto waits = scf::IfOp::create(builder, loc, TypeRange(result.getType()),
                                 choice.getCondition(),
                                 /*withElseRegion=*/true);
  result.replaceUsesWithIf(waits.getResult(0), [&](OpOperand &use) {
    return use.getOwner() != start;
  });
  for (Block *block : {waits.thenBlock(), waits.elseBlock()}) {
    builder.setInsertionPointToEnd(block);
    Value value = WaitOp::create(builder, loc, start.getFuture());
    scf::YieldOp::create(builder, loc, value);
  }
  op.getResult().replaceAllUsesWith(op.getInput());
  op.erase();
}

void mlir::ddp::hoistFromBranch(scf::IfOp choice,
                                function_ref<bool(Operation *)> takesTime) {
  if (choice.getElseRegion().empty())
    return;
  SmallVector<AllReduceOp> found;
  for (auto op : choice.thenBlock()->getOps<AllReduceOp>())
    if (op.getResult() && !getDeal(op) &&
        op.getInput().getParentBlock() == choice->getBlock() &&
        isOver(op.getInput(), op, choice))
      found.push_back(op);
  if (found.empty())
    return;
  AllReduceOp only = getOnlyReduction(choice);
  if (only && isJustComplete(only.getInput(), choice, takesTime)) {
    if (hasWorkBehind(choice, takesTime))
      startBehind(choice, only);
    return;
  }
  hoistCondition(choice);
  OpBuilder builder(choice);
  for (AllReduceOp op : found) {
    Location loc = op.getLoc();
    Value input = op.getInput();
    builder.setInsertionPoint(choice);
    auto start = AllReduceStartOp::create(
        builder, loc, FutureType::get(builder.getContext(), input.getType()),
        op.getReductionAttr(), input, op.getGroupAttr(), op.getWireAttr(),
        op.getStep(), op.getBucketNameAttr(), choice.getCondition());
    setErrorState(start, getErrorState(op));
    builder.setInsertionPointToStart(choice.elseBlock());
    Value same = WaitOp::create(builder, loc, start.getFuture());
    input.replaceUsesWithIf(same, [&](OpOperand &use) {
      return choice.getElseRegion().isAncestor(
          use.getOwner()->getParentRegion());
    });
    builder.setInsertionPoint(op);
    op.getResult().replaceAllUsesWith(
        WaitOp::create(builder, loc, start.getFuture()));
    op.erase();
  }
}
