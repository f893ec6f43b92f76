//===- HoistCollectives.cpp ------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Moves all-reduces up to the point where their operands are complete, because
// a front end may have put them all at the end of the backward pass.
//
//===----------------------------------------------------------------------===//

#include "HoistCollectives.h"

#include "../../Analysis/Dependences.h"

using namespace mlir;
using namespace mlir::ddp;

/// The all-reduce and, in front of it, what only prepares its operand: casts,
/// divisions and the packing. In program order.
static SmallVector<Operation *> getChain(Operation *op) {
  SmallVector<Operation *> chain = {op};
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

/// An all-reduce of values, or the start of one in a branch.
static bool isCandidate(Operation *op) {
  if (auto start = dyn_cast<AllReduceStartOp>(op))
    return bool(start.getCondition());
  auto allReduce = dyn_cast<AllReduceOp>(op);
  return allReduce && allReduce.getResult();
}

void mlir::ddp::hoistCollectives(Block &block) {
  llvm::DenseMap<Operation *, size_t> positions;
  for (auto [position, op] : llvm::enumerate(block))
    positions[&op] = position;
  // For each operation that may move, the operation that stays behind which it
  // goes; null while that is not decided.
  llvm::MapVector<Operation *, SmallVector<Operation *>> chains;
  llvm::DenseMap<Operation *, Operation *> anchorOf;
  for (Operation &op : block) {
    if (!isCandidate(&op))
      continue;
    chains[&op] = getChain(&op);
    for (Operation *link : chains[&op])
      anchorOf[link] = nullptr;
  }
  llvm::MapVector<Operation *, SmallVector<Operation *>> moved;
  for (auto &[op, chain] : chains) {
    size_t start = positions.lookup(chain.front());
    Operation *anchor = nullptr;
    bool isKept = false;
    auto stayBehind = [&](Operation *other) {
      if (auto it = anchorOf.find(other); it != anchorOf.end()) {
        // One of a later collective, that may go anywhere yet.
        if (!it->second) {
          isKept = true;
          return;
        }
        other = it->second;
      }
      if (!anchor || positions.lookup(anchor) < positions.lookup(other))
        anchor = other;
    };
    // The condition of a start.
    for (Value value : op->getOperands().drop_front())
      if (Operation *producer = value.getDefiningOp();
          producer && producer->getBlock() == &block)
        stayBehind(producer);
    for (Value value : chain.front()->getOperands().take_front(
             chain.size() == 1 ? 1 : chain.front()->getNumOperands())) {
      Operation *producer = value.getDefiningOp();
      if (!producer || producer->getBlock() != &block)
        continue;
      stayBehind(producer);
      // Whoever reads a gradient first, reads it in its bucket; afterwards
      // there is the sum.
      visitUsesOfParts(value, [&](OpOperand &use) {
        Operation *around = block.findAncestorOpInBlock(*use.getOwner());
        if (around && positions.lookup(around) < start)
          stayBehind(around);
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
