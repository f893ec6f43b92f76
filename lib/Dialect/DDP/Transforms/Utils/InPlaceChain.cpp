// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Follows chains of in-place updates.

#include "InPlaceChain.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::ddp;

/// If all branches of `op` update the same outer value in place, returns the
/// operand that the last branch yields as this result; otherwise null.
static OpOperand *getTiedYield(scf::IfOp op, unsigned resultNumber) {
  OpOperand *last = nullptr;
  Value common;
  for (Region *region : op.getRegions()) {
    if (region->empty())
      return nullptr;
    last = &region->front().getTerminator()->getOpOperand(resultNumber);
    Value start = last->get();
    while (region->isAncestor(start.getParentRegion())) {
      OpOperand *link = getTiedOperand(start);
      if (!link)
        return nullptr;
      start = link->get();
    }
    if (common && start != common)
      return nullptr;
    common = start;
  }
  return last;
}

OpOperand *mlir::ddp::getTiedOperand(Value value) {
  Operation *producer = value.getDefiningOp();
  if (!producer)
    return nullptr;
  if (auto dps = dyn_cast<DestinationStyleOpInterface>(producer))
    return dps.getTiedOpOperand(cast<OpResult>(value));
  if (auto loop = dyn_cast<scf::ForOp>(producer))
    return loop.getTiedLoopInit(cast<OpResult>(value));
  if (auto choice = dyn_cast<scf::IfOp>(producer))
    return getTiedYield(choice, cast<OpResult>(value).getResultNumber());
  return nullptr;
}

bool mlir::ddp::isOnlyReadBefore(Value value, Operation *except,
                                 Operation *limit) {
  for (OpOperand &use : value.getUses()) {
    Operation *owner = use.getOwner();
    if (owner == except)
      continue;
    Operation *user = limit->getBlock()->findAncestorOpInBlock(*owner);
    if (!user || !user->isBeforeInBlock(limit))
      return false;
    // Views, yields, calls and the like may keep the value alive.
    auto dps = dyn_cast<DestinationStyleOpInterface>(owner);
    if (!dps || dps.isDpsInit(&use))
      return false;
  }
  return true;
}

/// True if the operation that overwrites `link` has its value twice and may
/// keep it alive in the other operand, such as a loop that starts with it
/// twice.
static bool livesOnBeside(OpOperand &link) {
  auto dps = dyn_cast<DestinationStyleOpInterface>(link.getOwner());
  return llvm::any_of(link.getOwner()->getOpOperands(), [&](OpOperand &other) {
    return &other != &link && other.get() == link.get() &&
           (!dps || dps.isDpsInit(&other));
  });
}

OpOperand *mlir::ddp::findChainStart(Value value, Operation *consumer) {
  Block *block = consumer->getBlock();
  OpOperand *link = nullptr; // The operand in the chain that holds `value`.
  while (Operation *producer = value.getDefiningOp()) {
    if (isa<tensor::EmptyOp>(producer))
      return link;
    if (producer->getBlock() != block)
      return nullptr;
    if (link && !value.hasOneUse()) {
      if (auto fill = dyn_cast<linalg::FillOp>(producer)) {
        OpBuilder builder(link->getOwner());
        value = builder.clone(*fill)->getResult(0);
        replaceUse(*link, value);
      } else if (livesOnBeside(*link) ||
                 !isOnlyReadBefore(value, link->getOwner(), consumer)) {
        return nullptr;
      }
    }
    link = getTiedOperand(value);
    if (!link)
      return nullptr;
    value = link->get();
  }
  return nullptr;
}

FlatStartOpInterface mlir::ddp::getStartOn(OpOperand &use) {
  if (auto start = dyn_cast<FlatStartOpInterface>(use.getOwner()))
    return &use == &start.getInputMutable() || start.getCondition() ? start
                                                                    : nullptr;
  auto wait = dyn_cast<FlatWaitOp>(use.getOwner());
  return wait && use.get() == wait.getSource() ? wait.getStart()
                                               : FlatStartOpInterface();
}

void mlir::ddp::replaceUse(OpOperand &use, Value value) {
  if (FlatStartOpInterface start = getStartOn(use))
    start.replaceInput(value);
  else
    use.set(value);
}

void mlir::ddp::setChainStart(OpOperand &start, Value memory) {
  Operation *empty = start.get().getDefiningOp();
  replaceUse(start, memory);
  if (empty->use_empty())
    empty->erase();
}
