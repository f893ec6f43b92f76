// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Moves collectives up to the point where their operands are complete, because
// a front end may have put them all at the end of the backward pass; and turns
// all-reduces at the start of a branch, such as those of PowerSGD's vanilla
// phase, into conditional starts.

#include "HoistCollectives.h"

using namespace mlir;
using namespace mlir::ddp;

/// True if `op` adds the error of earlier steps to a bucket that was packed
/// only for it.
static bool addsErrorToPack(Operation *op) {
  auto add = dyn_cast<AddOp>(op);
  if (!add)
    return false;
  Operation *pack = add.getInput().getDefiningOp<PackOp>();
  Operation *load = add.getRhs().getDefiningOp<LoadOp>();
  auto isForIt = [&](Operation *before) {
    return before && before->hasOneUse() &&
           before->getBlock() == op->getBlock();
  };
  return isForIt(pack) && isForIt(load);
}

/// Returns the collective after the operations that only prepare its operand:
/// casts, divisions and the packing. For a reduce-scatter, which does not
/// change its operand, includes the sum with an error.
static SmallVector<Operation *> getChain(Operation *op) {
  SmallVector<Operation *> chain = {op};
  Operation *sum = op->getOperand(0).getDefiningOp();
  if (cast<CollectiveOpInterface>(op).getKind() ==
          CollectiveKind::ReduceScatter &&
      sum && sum->getBlock() == op->getBlock() && addsErrorToPack(sum)) {
    auto add = cast<AddOp>(sum);
    return {add.getInput().getDefiningOp(), add.getRhs().getDefiningOp(), add,
            op};
  }
  while (Operation *before = chain.back()->getOperand(0).getDefiningOp()) {
    if (!isa<CastOp, PackOp, ScaleOp>(before) || !before->hasOneUse() ||
        before->getBlock() != op->getBlock() || before->getNumOperands() == 0)
      break;
    chain.push_back(before);
    if (isa<PackOp>(before))
      break;
  }
  std::reverse(chain.begin(), chain.end());
  return chain;
}

/// True for a collective on values, or the start of one in a branch.
static bool isCandidate(Operation *op) {
  auto start = dyn_cast<AllReduceStartOp>(op);
  return start ? bool(start.getCondition()) : isWholeOnValues(op);
}

/// True if the memory of the chain's operands may get new contents: the result
/// of a reduction or a broadcast, which replaces its operand, or a bucket.
static bool mayReplaceOperands(ArrayRef<Operation *> chain) {
  auto collective = cast<CollectiveOpInterface>(chain.back());
  return chain.size() != 1 ||
         collective.getKind() == CollectiveKind::AllReduce ||
         collective.getKind() == CollectiveKind::Broadcast;
}

/// Maps each load of the block to the last operation before it that may write
/// its state, if there is one.
static llvm::DenseMap<Operation *, Operation *> findWriters(Block &block) {
  llvm::DenseMap<const void *, Operation *> writers;
  llvm::DenseMap<Operation *, Operation *> found;
  Operation *unknown = nullptr;
  for (Operation &op : block) {
    Effects effects = getEffects(&op);
    if (isa<LoadOp>(op)) {
      Operation *writer = writers.lookup(effects.accesses.front().what);
      if (!writer || (unknown && writer->isBeforeInBlock(unknown)))
        writer = unknown;
      if (writer)
        found[&op] = writer;
    }
    for (Access access : effects.accesses)
      if (access.isWrite)
        writers[access.what] = &op;
    if (effects.isUnknown)
      unknown = &op;
  }
  return found;
}

void mlir::ddp::hoistCollectives(Block &block,
                                 const TensorsInMemory &inMemory) {
  llvm::DenseMap<Operation *, size_t> positions;
  for (auto [position, op] : llvm::enumerate(block))
    positions[&op] = position;
  llvm::DenseMap<Operation *, Operation *> writers = findWriters(block);
  // For each operation that may move, the anchor after which it goes. Anchors
  // do not move; null while undecided.
  llvm::MapVector<Operation *, SmallVector<Operation *>> chains;
  llvm::DenseMap<Operation *, Operation *> anchorOf;
  for (Operation &op : block) {
    if (!isCandidate(&op))
      continue;
    SmallVector<Operation *> chain = getChain(&op);
    if (inMemory.getUse(chain.front()).reads)
      continue;
    chains[&op] = chain;
    for (Operation *link : chains[&op])
      anchorOf[link] = nullptr;
  }
  llvm::MapVector<Operation *, SmallVector<Operation *>> moved;
  for (auto &[op, chain] : chains) {
    size_t start = positions.lookup(chain.front());
    Operation *anchor = nullptr;
    bool isKept = false;
    auto placeAfter = [&](Operation *other) {
      if (auto it = anchorOf.find(other); it != anchorOf.end()) {
        // It belongs to a later collective whose position is still open.
        if (!it->second) {
          isKept = true;
          return;
        }
        other = it->second;
      }
      if (!anchor || positions.lookup(anchor) < positions.lookup(other))
        anchor = other;
    };
    for (Operation *link : chain)
      if (Operation *writer = writers.lookup(link))
        placeAfter(writer);
    // The condition of a start, and the step used for rounding.
    for (Value value : op->getOperands().drop_front())
      if (Operation *producer = value.getDefiningOp();
          producer && producer->getBlock() == &block)
        placeAfter(producer);
    for (Value value : chain.front()->getOperands().take_front(
             chain.size() == 1 ? 1 : chain.front()->getNumOperands())) {
      Operation *producer = value.getDefiningOp();
      if (!producer || producer->getBlock() != &block)
        continue;
      placeAfter(producer);
      // Earlier readers of a gradient read it in its bucket, which later holds
      // the sum.
      if (!mayReplaceOperands(chain))
        continue;
      visitUsesOfParts(value, [&](OpOperand &use) {
        Operation *around = block.findAncestorOpInBlock(*use.getOwner());
        if (around && positions.lookup(around) < start)
          placeAfter(around);
        return WalkResult::advance();
      });
    }
    if (anchor && !isKept)
      llvm::append_range(moved[anchor], chain);
    for (Operation *link : chain)
      anchorOf[link] = anchor && !isKept ? anchor : link;
  }
  for (auto &[anchor, ops] : moved)
    for (Operation *op : llvm::reverse(ops))
      op->moveAfter(anchor);
}

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
