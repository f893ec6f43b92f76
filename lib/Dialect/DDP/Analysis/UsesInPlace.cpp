//===- UsesInPlace.cpp ---------------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See UsesInPlace.h.
//
//===----------------------------------------------------------------------===//

#include "UsesInPlace.h"

using namespace mlir;
using namespace mlir::ddp;

OpOperand *mlir::ddp::findUseInPlace(Value value,
                                     function_ref<bool(OpOperand &)> isFound) {
  constexpr size_t maxValues = 16;
  llvm::SmallSetVector<Value, maxValues> values;
  values.insert(value);
  for (size_t i = 0; i < std::min(values.size(), maxValues); ++i)
    for (OpOperand &use : values[i].getUses()) {
      if (isFound(use))
        return &use;
      Operation *user = use.getOwner();
      if (auto wait = dyn_cast<FlatWaitOp>(user)) {
        if (use.get() == wait.getDestination())
          values.insert(wait.getResult());
        continue;
      }
      auto flat = dyn_cast<FlatOpInterface>(user);
      for (OpResult result : user->getResults())
        if (flat && result.getType() == value.getType() &&
            flat.mayOverwrite(result.getResultNumber(), use))
          values.insert(result);
    }
  return nullptr;
}

bool mlir::ddp::endsInStore(Value value, StringRef state) {
  return findUseInPlace(value, [&](OpOperand &use) {
    auto store = dyn_cast<StoreOp>(use.getOwner());
    return store && store.getState() == state;
  });
}

bool mlir::ddp::outlivesMaking(Value value, StoreOp store) {
  Operation *made = store.getValue().getDefiningOp();
  Block *block = store->getBlock();
  if (!made || made->getBlock() != block)
    return false;
  return llvm::any_of(value.getUsers(), [&](Operation *user) {
    // A collective reads its operand until it is awaited.
    if (auto collective = dyn_cast<CollectiveOpInterface>(user))
      user = collective.getEnd();
    Operation *ancestor = block->findAncestorOpInBlock(*user);
    return ancestor && made->isBeforeInBlock(ancestor);
  });
}
