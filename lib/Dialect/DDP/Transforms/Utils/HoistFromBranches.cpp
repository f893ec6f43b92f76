// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns all-reduces at the start of a branch, such as those of PowerSGD's
// vanilla phase, into conditional starts.

#include "HoistCollectives.h"

using namespace mlir;
using namespace mlir::ddp;

/// Returns true if, after `op` reduces `value` in place in the then branch of
/// `choice`, only the else branch still reads its memory.
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

/// True if a load would return the same at the start of its block.
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

/// Collects the operations that compute a condition, operands first. Returns
/// false if they cannot move to the start of the block.
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

/// Computes the condition at the start of the block if possible, because
/// buckets may be complete long before the condition is computed.
static void hoistCondition(scf::IfOp choice) {
  Block *block = choice->getBlock();
  llvm::SetVector<Operation *> slice;
  if (!collect(choice.getCondition(), block, slice))
    return;
  for (Operation *op : llvm::reverse(slice))
    op->moveBefore(block, block->begin());
}

/// True if `value` becomes complete just before `choice`: no operation that
/// takes time is between the two.
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

/// True if an operation that takes time and does not depend on the results of
/// `choice` follows it.
static bool hasWorkAfter(scf::IfOp choice,
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

/// Returns the reduction of a branch that does nothing else, or null.
static AllReduceOp getOnlyReduction(scf::IfOp choice) {
  auto op = dyn_cast<AllReduceOp>(choice.thenBlock()->front());
  return op && choice.getNumResults() == 1 &&
                 op->getNextNode() == choice.thenYield() &&
                 choice.thenYield().getOperand(0) == op.getResult() &&
                 op.getInput().getType() == op.getResult().getType()
             ? op
             : AllReduceOp();
}

/// Moves the reduction of the then branch after `choice`. The else branch keeps
/// its position, where the bucket is in the cache, and the wait returns its
/// result if nothing is started.
static void startAfter(scf::IfOp choice, AllReduceOp op) {
  OpBuilder builder(choice->getContext());
  builder.setInsertionPointAfter(choice);
  Location loc = op.getLoc();
  Value result = choice.getResult(0);
  Operation *start = createStart(builder, op, choice.getCondition());
  start->setOperand(0, result);
  auto waits = scf::IfOp::create(builder, loc, TypeRange(result.getType()),
                                 choice.getCondition(),
                                 /*withElseRegion=*/true);
  result.replaceUsesWithIf(waits.getResult(0), [&](OpOperand &use) {
    return use.getOwner() != start;
  });
  for (Block *block : {waits.thenBlock(), waits.elseBlock()}) {
    builder.setInsertionPointToEnd(block);
    Value value = WaitOp::create(builder, loc, start->getResult(0));
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
    if (op.getResult() && !getAssignment(op) &&
        op.getInput().getParentBlock() == choice->getBlock() &&
        isOver(op.getInput(), op, choice))
      found.push_back(op);
  if (found.empty())
    return;
  AllReduceOp only = getOnlyReduction(choice);
  if (only && isJustComplete(only.getInput(), choice, takesTime)) {
    if (hasWorkAfter(choice, takesTime))
      startAfter(choice, only);
    return;
  }
  hoistCondition(choice);
  OpBuilder builder(choice);
  for (AllReduceOp op : found) {
    Location loc = op.getLoc();
    Value input = op.getInput();
    builder.setInsertionPoint(choice);
    Value future =
        createStart(builder, op, choice.getCondition())->getResult(0);
    builder.setInsertionPointToStart(choice.elseBlock());
    Value same = WaitOp::create(builder, loc, future);
    input.replaceUsesWithIf(same, [&](OpOperand &use) {
      return choice.getElseRegion().isAncestor(
          use.getOwner()->getParentRegion());
    });
    builder.setInsertionPoint(op);
    op.getResult().replaceAllUsesWith(WaitOp::create(builder, loc, future));
    op.erase();
  }
}
