// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Moves collectives up to the point where their operands are complete, because
// a front end may have put them all at the end of the backward pass.

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
  for (auto &[anchor, ops] : moved) {
    Operation *previous = anchor;
    for (Operation *op : ops) {
      op->moveAfter(previous);
      previous = op;
    }
  }
}
