//===- StateUses.cpp -------------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Follows values that may share memory, and gives up on what it does not know.
//
//===----------------------------------------------------------------------===//

#include "StateUses.h"

#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/CallInterfaces.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"

using namespace mlir;
using namespace mlir::ddp;

bool mlir::ddp::isOverBefore(Operation *user, Operation *op) {
  if (insideMutuallyExclusiveRegions(user, op))
    return true;
  if (Operation *inBlock = op->getBlock()->findAncestorOpInBlock(*user))
    return inBlock->isBeforeInBlock(op);
  Operation *around = user->getBlock()->findAncestorOpInBlock(*op);
  return around && user->isBeforeInBlock(around);
}

/// What the user makes in the memory of `use`: nothing, certain values, or
/// something unknown (nullopt).
static std::optional<SmallVector<Value>> getAliases(OpOperand &use) {
  Operation *user = use.getOwner();
  if (isa<tensor::ExtractSliceOp, UnpackOp>(user))
    return llvm::to_vector_of<Value>(user->getResults());
  if (auto wait = dyn_cast<WaitOp>(user)) {
    if (use.get() == wait.getInFlight())
      return llvm::to_vector_of<Value>(user->getResults());
    return SmallVector<Value>();
  }
  if (auto algebra = dyn_cast<AlgebraOpInterface>(user)) {
    SmallVector<Value> aliases;
    for (auto [number, destination] :
         llvm::enumerate(algebra.getDestinationMutable()))
      if (&destination == &use)
        aliases.push_back(user->getResult(number));
    return aliases;
  }
  if (auto dps = dyn_cast<DestinationStyleOpInterface>(user)) {
    if (dps.isDpsInput(&use))
      return SmallVector<Value>();
    if (user->getNumResults() != 0)
      return SmallVector<Value>{dps.getTiedOpResult(&use)};
  }
  bool isHarmless = user->getNumRegions() == 0 &&
                    !user->hasTrait<OpTrait::IsTerminator>() &&
                    !isa<CallOpInterface>(user) &&
                    llvm::none_of(user->getResultTypes(), [](Type type) {
                      return isa<TensorType, BaseMemRefType>(type);
                    });
  if (isHarmless || isa<ConcatOp, PackOp>(user))
    return SmallVector<Value>();
  return std::nullopt;
}

bool mlir::ddp::isOnlyRead(OpOperand &use) {
  std::optional<SmallVector<Value>> aliases = getAliases(use);
  return aliases && aliases->empty();
}

bool mlir::ddp::isOverBy(OpOperand &use, StoreOp store) {
  if (use.getOwner() == store)
    return true;
  if (!isOverBefore(use.getOwner(), store))
    return false;
  // A collective reads its operand until it is awaited.
  if (auto start = dyn_cast<AllReduceStartOp>(use.getOwner()))
    if (!isOverBefore(start.getWait(), store))
      return false;
  std::optional<SmallVector<Value>> aliases = getAliases(use);
  return aliases && llvm::all_of(*aliases, [&](Value alias) {
           return isOverBy(alias, store);
         });
}

bool mlir::ddp::isOverBy(Value value, StoreOp store) {
  return llvm::all_of(value.getUses(),
                      [&](OpOperand &use) { return isOverBy(use, store); });
}
