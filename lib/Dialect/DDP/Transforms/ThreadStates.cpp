// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-thread-states: reduces the uses of every state in a block to one load at
// the start and one store at the end. `ddp-materialize-buckets` then gives load
// and store the same memory, which One-Shot Bufferize does not know, so no
// operation may need the old value after the new one was stored.

#include "../Analysis/MemoryUses.h"
#include "Utils/Arrays.h"
#include "Utils/InPlaceChain.h"

#include "mlir/Interfaces/CallInterfaces.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"

#define GEN_PASS_DEF_DDPTHREADSTATESPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
/// The known value of a state, and the store of that value if nothing has
/// needed that store yet.
struct Known {
  Value value;
  StoreOp store;
};
using KnownStates = llvm::DenseMap<StringRef, Known>;
} // namespace

/// Forgets the states that `op` may change, and keeps the stores that it may
/// need.
static void applyNested(Operation *op, KnownStates &known) {
  if (known.empty())
    return;
  op->walk([&](Operation *nested) {
    if (isa<CallOpInterface>(nested))
      known.clear();
    else if (auto load = dyn_cast<LoadOp>(nested))
      known[load.getState()].store = nullptr;
    else if (auto store = dyn_cast<StoreOp>(nested))
      known.erase(store.getState());
    else if (auto draw = dyn_cast<FlatRandomNormalOp>(nested))
      known.erase(draw.getGenerator());
  });
}

/// Replaces loads by the value loaded or stored before, and drops stores that
/// another store overwrites.
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
               isa<CallOpInterface, FlatRandomNormalOp>(op)) {
      applyNested(&op, known);
      for (Region &region : op.getRegions())
        for (Block &nested : region)
          thread(nested);
    }
  }
}

/// Copies the value of `load` for users that may need it after `store`.
static void saveOldValue(LoadOp load, StoreOp store) {
  SmallVector<OpOperand *> late;
  for (OpOperand &use : load.getValue().getUses())
    if (!isOverBy(use, store))
      late.push_back(&use);
  if (late.empty())
    return;
  OpBuilder builder(load->getContext());
  builder.setInsertionPointAfter(load);
  Value copy = createCopy(builder, load.getLoc(), load.getValue());
  for (OpOperand *use : late)
    replaceUse(*use, copy);
}

/// True if `store` comes after `load`, in the same block or in a branch there,
/// and runs at most once for each load.
static bool isStoredUnder(LoadOp load, StoreOp store) {
  Operation *around = load->getBlock()->findAncestorOpInBlock(*store);
  return around && load->isBeforeInBlock(around) &&
         runsAtMostOncePer(load.getValue(), store);
}

static StringRef getState(Operation *op) {
  if (auto load = dyn_cast<LoadOp>(op))
    return load.getState();
  return cast<StoreOp>(op).getState();
}

static bool holdsTensor(Operation *op) {
  Type type = isa<LoadOp>(op) ? op->getResult(0).getType()
                              : op->getOperand(0).getType();
  return isa<RankedTensorType>(type);
}

/// True if two accesses use one state and at least one of them stores it.
static bool areInConflict(Operation *a, Operation *b) {
  return getState(a) == getState(b) && (isa<StoreOp>(a) || isa<StoreOp>(b));
}

static LogicalResult reportConflict(Operation *a, Operation *b,
                                    StringRef where) {
  return (a->emitOpError() << "expected all uses of state @" << getState(a)
                           << " in one " << where)
             .attachNote(b->getLoc())
         << "this use is in another";
}

namespace {
using Accesses = SmallVector<Operation *>;

struct ThreadStatesPass
    : public ddp::impl::DDPThreadStatesPassBase<ThreadStatesPass> {
  void runOnOperation() override {
    if (getOperation().getOps<StateOp>().empty())
      return markAllAnalysesPreserved();
    llvm::MapVector<Operation *, Accesses> byFunction;
    for (auto function : getOperation().getOps<FunctionOpInterface>()) {
      for (Block &block : function.getFunctionBody())
        thread(block);
      function->walk([&](Operation *op) {
        if (isa<LoadOp, StoreOp>(op) && holdsTensor(op))
          byFunction[function].push_back(op);
      });
    }
    for (auto &[function, accesses] : byFunction)
      if (failed(checkCallees(function, accesses, byFunction)) ||
          failed(checkBlocks(accesses)))
        return signalPassFailure();
  }

  /// Checks the accesses of one function.
  static LogicalResult checkBlocks(ArrayRef<Operation *> accesses) {
    llvm::StringMap<SmallVector<Operation *, 2>> byState;
    for (Operation *op : accesses)
      byState[getState(op)].push_back(op);
    for (Operation *a : accesses)
      for (Operation *b : byState[getState(a)]) {
        auto load = dyn_cast<LoadOp>(a);
        auto store = dyn_cast<StoreOp>(b);
        if (load && store && isStoredUnder(load, store))
          saveOldValue(load, store);
        else if (areInConflict(a, b) && a->getBlock() != b->getBlock() &&
                 !insideMutuallyExclusiveRegions(a, b) &&
                 !(isa<StoreOp>(a) && isa<LoadOp>(b) &&
                   isStoredUnder(cast<LoadOp>(b), cast<StoreOp>(a))))
          return reportConflict(a, b, "block");
      }
    return success();
  }

  /// Checks that callees do not access states that their caller is using.
  LogicalResult
  checkCallees(Operation *caller, ArrayRef<Operation *> accesses,
               const llvm::MapVector<Operation *, Accesses> &byFunction) {
    SymbolTableCollection symbols;
    llvm::SetVector<Operation *> reached;
    reached.insert(caller);
    for (unsigned i = 0; i < reached.size(); ++i)
      reached[i]->walk([&](CallOpInterface call) {
        if (Operation *callee = call.resolveCallableInTable(&symbols))
          reached.insert(callee);
      });
    for (Operation *callee : reached) {
      auto found = byFunction.find(callee);
      if (callee == caller || found == byFunction.end())
        continue;
      for (Operation *a : accesses)
        for (Operation *b : found->second)
          if (areInConflict(a, b))
            return reportConflict(a, b, "function");
    }
    return success();
  }
};
} // namespace
