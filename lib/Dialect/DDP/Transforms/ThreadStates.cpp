//===- ThreadStates.cpp ----------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-thread-states: makes of every state one load at the start and one store
// at the end of its life in a block. `ddp-bucket-views` then gives load and
// store the same memory, behind the back of One-Shot Bufferize; so nothing may
// be left here that would need the old value after the new one was stored.
//
//===----------------------------------------------------------------------===//

#include "ddphook/Dialect/DDP/Transforms/Passes.h"

#include "mlir/Interfaces/ControlFlowInterfaces.h"

namespace mlir::ddp {
#define GEN_PASS_DEF_DDPTHREADSTATESPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h.inc"
} // namespace mlir::ddp

using namespace mlir;
using namespace mlir::ddp;

namespace {
/// What a block knows of a state: its value, and the store that gave it that
/// value if nothing has needed that store yet.
struct Known {
  Value value;
  StoreOp store;
};
using KnownStates = llvm::DenseMap<StringRef, Known>;
} // namespace

/// Forgets what `op` may change behind our back, and keeps the stores that it
/// may need.
static void applyNested(Operation *op, KnownStates &known) {
  op->walk([&](Operation *nested) {
    if (isa<CallOpInterface>(nested))
      known.clear();
    else if (auto load = dyn_cast<LoadOp>(nested))
      known[load.getState()].store = nullptr;
    else if (auto store = dyn_cast<StoreOp>(nested))
      known.erase(store.getState());
    else if (auto draw = dyn_cast<RandomNormalOp>(nested))
      known.erase(draw.getGenerator());
  });
}

/// Gives loads the value that was loaded or stored before, and drops stores
/// that another one follows.
static void thread(Block &block) {
  KnownStates known;
  for (Operation &op : llvm::make_early_inc_range(block)) {
    if (auto load = dyn_cast<LoadOp>(op)) {
      Known &state = known[load.getState()];
      if (state.value) {
        load.replaceAllUsesWith(state.value);
        load.erase();
      } else {
        state.value = load.getValue();
      }
    } else if (auto store = dyn_cast<StoreOp>(op)) {
      Known &state = known[store.getState()];
      if (state.store)
        state.store.erase();
      state = {store.getValue(), store};
    } else if (op.getNumRegions() != 0 ||
               isa<CallOpInterface, RandomNormalOp>(op)) {
      applyNested(&op, known);
      for (Region &region : op.getRegions())
        for (Block &nested : region)
          thread(nested);
    }
  }
}

/// Whether `user` may run after `store`.
static bool isAfter(Operation *user, StoreOp store) {
  Operation *inBlock = store->getBlock()->findAncestorOpInBlock(*user);
  return !inBlock || store->isBeforeInBlock(inBlock);
}

/// Uses behind `store` of what `value` is (a part of) get a copy.
static void saveOldValue(Value value, StoreOp store) {
  SmallVector<OpOperand *> late;
  for (OpOperand &use : value.getUses()) {
    if (isAfter(use.getOwner(), store))
      late.push_back(&use);
    else if (isa<tensor::ExtractSliceOp>(use.getOwner()))
      saveOldValue(use.getOwner()->getResult(0), store);
  }
  if (late.empty())
    return;
  OpBuilder builder(store->getContext());
  builder.setInsertionPointAfterValue(value);
  Value copy = bufferization::AllocTensorOp::create(
      builder, store.getLoc(), cast<RankedTensorType>(value.getType()),
      ValueRange(), value);
  for (OpOperand *use : late)
    use->set(copy);
}

namespace {
struct ThreadStatesPass
    : public ddp::impl::DDPThreadStatesPassBase<ThreadStatesPass> {
  using DDPThreadStatesPassBase::DDPThreadStatesPassBase;

  void runOnOperation() override {
    for (Block &block : getOperation().getFunctionBody())
      thread(block);

    llvm::MapVector<StringRef, SmallVector<Operation *>> accesses;
    getOperation()->walk([&](Operation *op) {
      if (auto load = dyn_cast<LoadOp>(op))
        accesses[load.getState()].push_back(op);
      else if (auto store = dyn_cast<StoreOp>(op))
        accesses[store.getState()].push_back(op);
    });
    for (auto &[state, ops] : accesses)
      if (failed(check(state, ops)))
        return signalPassFailure();
  }

  static LogicalResult check(StringRef state, ArrayRef<Operation *> ops) {
    auto getValue = [](Operation *op) {
      return isa<LoadOp>(op) ? op->getResult(0) : op->getOperand(0);
    };
    if (!isa<RankedTensorType>(getValue(ops.front()).getType()))
      return success();
    for (Operation *a : ops)
      for (Operation *b : ops) {
        bool isRead = isa<LoadOp>(a) && isa<LoadOp>(b);
        if (isRead || a->getBlock() == b->getBlock() ||
            insideMutuallyExclusiveRegions(a, b))
          continue;
        InFlightDiagnostic diagnostic =
            a->emitOpError() << "expected all uses of state @" << state
                             << " in one block";
        diagnostic.attachNote(b->getLoc()) << "this one is in another";
        return diagnostic;
      }
    for (Operation *op : ops)
      if (auto store = dyn_cast<StoreOp>(op))
        for (Operation *other : ops)
          if (isa<LoadOp>(other) && other->getBlock() == op->getBlock() &&
              other->isBeforeInBlock(op))
            saveOldValue(other->getResult(0), store);
    return success();
  }
};
} // namespace
