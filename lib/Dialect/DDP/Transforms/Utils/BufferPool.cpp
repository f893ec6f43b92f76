// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "BufferPool.h"
#include "../../Analysis/MemoryUses.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::ddp;

Value BufferPool::create(Operation *before, Location loc, Type type) {
  OpBuilder builder(before);
  Value buffer = tensor::EmptyOp::create(builder, loc, type, ValueRange());
  add(buffer);
  return buffer;
}

/// Returns the buffer that contains a part of a split bucket, or `root` itself.
Value BufferPool::getWhole(Value root) const {
  auto split = root.getDefiningOp<SplitOp>();
  return split ? getRoot(split.getBucket()) : root;
}

LoadOp BufferPool::getState(Value root) const {
  return getWhole(root).getDefiningOp<LoadOp>();
}

/// Returns the first store to `state` after `op` in its block, or null.
StoreOp BufferPool::findNextStore(Operation *op, FlatSymbolRefAttr state) {
  Block *block = op->getBlock();
  auto [stores, isNew] = storesIn.try_emplace(block);
  if (isNew)
    for (auto store : block->getOps<StoreOp>())
      stores->second[store.getStateAttr()].push_back(store);
  for (StoreOp store : stores->second[state])
    if (op->isBeforeInBlock(store))
      return store;
  return {};
}

bool BufferPool::mayLiveIn(Value root, Value result) {
  if (auto update = findArgumentUpdate(getWhole(root)))
    return isOverBy(result, update);
  LoadOp load = getState(root);
  if (!load)
    return true;
  Operation *op = result.getDefiningOp();
  if (load->getBlock() != op->getBlock())
    return false;
  // Only the wait uses a value in flight.
  if (auto start = dyn_cast<FlatStartOpInterface>(op)) {
    op = start.getWait();
    result = op->getResult(0);
  }
  StoreOp store = findNextStore(op, load.getStateAttr());
  if (!store)
    return false;
  return store.getValue() == result
             ? llvm::all_of(result.getUses(),
                            [&](OpOperand &use) {
                              return use.getOwner() == store || isOnlyRead(use);
                            })
             : isOverBy(result, store) && !outlivesMaking(result, store);
}

bool BufferPool::isDeadAfter(Value root, Value value, Operation *op) const {
  return runsAtMostOncePer(root, op) &&
         !reassembled.contains(root.getDefiningOp()) &&
         !visitMemoryUses(root, [&](OpOperand &use) {
            Operation *user = use.getOwner();
            // The wait still reads what `op` has started to reduce.
            if (user != op && getAwaited(user) != op)
              return requireBefore(user, op);
            return use.get() == value ? WalkResult::advance()
                                      : WalkResult::interrupt();
          }).wasInterrupted();
}

Value BufferPool::findDyingOperand(FlatOpInterface op, OpResult result) {
  Value found;
  for (OpOperand &operand : op->getOpOperands()) {
    Value value = operand.get(), root = getRoot(value);
    if (value.getType() != result.getType() || !root ||
        !op.mayOverwrite(result.getResultNumber(), operand) ||
        !mayLiveIn(root, result) || !isDeadAfter(root, value, op))
      continue;
    if (getState(root))
      return value;
    if (!found)
      found = value;
  }
  return found;
}

Value BufferPool::findYielded(FlatOpInterface op, Value result) {
  auto choice = dyn_cast<scf::IfOp>(op->getParentOp());
  if (!choice || op->getParentRegion() != &choice.getElseRegion())
    return {};
  for (OpOperand &use : result.getUses()) {
    if (use.getOwner() != choice.elseYield())
      continue;
    Value root = getRoot(choice.thenYield().getOperand(use.getOperandNumber()));
    if (root && root.getType() == result.getType() &&
        root.getParentBlock() == choice->getBlock() &&
        mayLiveIn(root, result) && isDeadAfter(root, Value(), op))
      return root;
  }
  return {};
}

Value BufferPool::findDead(Operation *op, Value result) {
  ArrayRef<Value> all = buffers[result.getType()];
  for (Value root : llvm::reverse(all.take_back(maxCandidates)))
    if (numReuses.lookup(root) < maxReuses && mayLiveIn(root, result) &&
        isDeadAfter(root, Value(), op)) {
      auto load = root.getDefiningOp<LoadOp>();
      if (!load || endsInStore(result, load.getState())) {
        ++numReuses[root];
        return root;
      }
    }
  return {};
}
