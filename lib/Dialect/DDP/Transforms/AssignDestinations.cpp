// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-assign-destinations: lets operations on flat tensors write to existing
// memory. BufferPool.h says which memory a result may reuse, and
// ConcatPlacement.h where the parts of a bucket are computed.

#include "../Analysis/MemoryUses.h"
#include "Utils/Arrays.h"
#include "Utils/ConcatPlacement.h"

#define GEN_PASS_DEF_DDPASSIGNDESTINATIONSPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
/// Assigns destinations in one walk over a function.
class Assigner {
public:
  void run(Region &region) {
    for (Block &block : region)
      for (Operation &op : llvm::make_early_inc_range(block)) {
        // May erase the operation, unless it has regions.
        if (op.getNumRegions() == 0) {
          visit(&op);
          continue;
        }
        for (Region &nested : op.getRegions())
          run(nested);
        if (auto choice = dyn_cast<scf::IfOp>(op))
          aliasResults(choice);
      }
  }

private:
  void visit(Operation *op);
  void assign(FlatOpInterface op);
  Value findDestination(FlatOpInterface op, OpResult result);
  void keepOperand(FlatStartOpInterface start);
  void aliasResults(scf::IfOp op);
  void yieldInOneBuffer(scf::IfOp op, OpResult result);

  BufferPool pool;
  ConcatPlacement concats{pool};
};
} // namespace

/// Returns the empty tensor that `ddp-flatten` created as the destination of a
/// result, unless something else uses it too.
static tensor::EmptyOp getPlaceholder(OpOperand &init) {
  auto empty = init.get().getDefiningOp<tensor::EmptyOp>();
  return empty && empty->hasOneUse() ? empty : tensor::EmptyOp();
}

void Assigner::assign(FlatOpInterface op) {
  auto inits = cast<DestinationStyleOpInterface>(op.getOperation());
  SmallVector<Value> chosen;
  for (OpOperand &init : inits.getDpsInitsMutable()) {
    Value destination;
    if (getPlaceholder(init)) {
      destination = findDestination(op, inits.getTiedOpResult(&init));
      if (!destination || llvm::is_contained(chosen, destination)) {
        destination = init.get();
        pool.add(destination);
      }
    }
    chosen.push_back(destination);
  }
  for (auto [init, destination] :
       llvm::zip(inits.getDpsInitsMutable(), chosen)) {
    OpResult result = inits.getTiedOpResult(&init);
    pool.setRoot(result, pool.getRoot(destination ? destination : init.get()));
    if (!destination)
      continue;
    if (tensor::EmptyOp placeholder = getPlaceholder(init);
        placeholder != destination.getDefiningOp()) {
      init.set(destination);
      placeholder.erase();
    }
    concats.insertResult(op, result);
  }
}

/// Returns existing memory for a result, or null if there is none.
Value Assigner::findDestination(FlatOpInterface op, OpResult result) {
  // An operand that dies in a part of a bucket passes its memory on to the
  // result, unless the result is a part of something else.
  Value dying = pool.findDyingOperand(op, result);
  Value root = dying ? pool.getRoot(dying) : Value();
  OpOperand *use = findConcatUse(op, result);
  bool isInPart = root && root.getDefiningOp<SplitOp>();
  if (isInPart && (!use || isInSamePlace(*use, root)))
    return dying;
  if (Value place = concats.findInSplit(op, result))
    return place;
  if (use)
    return concats.createPlace(op, *use, isInPart);
  if (Value yielded = pool.findYielded(op, result))
    return yielded;
  return dying ? dying : pool.findDead(op, result);
}

/// Makes all branches leave a result in the same buffer: one from outside the
/// branches in which a branch leaves it already, or else a new one. Otherwise
/// the layout of the result's memory would be known only at run time.
void Assigner::yieldInOneBuffer(scf::IfOp op, OpResult result) {
  SmallVector<OpOperand *> yields;
  llvm::SmallSetVector<Value, 2> candidates;
  for (Region *region : op.getRegions()) {
    OpOperand &operand =
        region->front().getTerminator()->getOpOperand(result.getResultNumber());
    yields.push_back(&operand);
    candidates.insert(pool.getRoot(operand.get()));
  }
  auto type = dyn_cast<RankedTensorType>(result.getType());
  // Leave the branches of other programs as they are.
  if (!type || (candidates.size() == 1 &&
                (!candidates[0] || candidates[0].getType() == type)))
    return;
  Value chosen;
  for (Value root : candidates)
    if (root && root.getType() == type && !root.getDefiningOp<LoadOp>() &&
        root.getParentBlock() == op->getBlock() &&
        (pool.getState(root) || pool.mayLiveIn(root, result)) &&
        llvm::all_of(yields, [&](OpOperand *yield) {
          return pool.getRoot(yield->get()) == root ||
                 pool.isDeadAfter(root, Value(), yield->getOwner());
        }))
      chosen = root;
  if (!chosen)
    chosen = pool.create(op, op.getLoc(), type);
  for (OpOperand *yield : yields) {
    if (pool.getRoot(yield->get()) == chosen)
      continue;
    OpBuilder builder(yield->getOwner());
    yield->set(bufferization::MaterializeInDestinationOp::create(
                   builder, op.getLoc(), type, yield->get(), chosen)
                   .getResult());
    pool.setRoot(yield->get(), chosen);
  }
}

/// The value that a branch yields lives on in the result.
void Assigner::aliasResults(scf::IfOp op) {
  if (op.getElseRegion().empty())
    return;
  for (OpResult result : op.getResults()) {
    yieldInOneBuffer(op, result);
    pool.setRoot(result, pool.getRoot(op.thenYield()->getOperand(
                             result.getResultNumber())));
  }
}

/// A conditional start works in the memory of its operand. Copies the operand
/// if anything else needs that memory: a tensor unpacked from it, or a state.
void Assigner::keepOperand(FlatStartOpInterface start) {
  Value input = start.getInputMutable().get(), root = pool.getRoot(input);
  if (root && !pool.getState(root) &&
      isLastUser(start, root, WalkResult::skip()))
    return;
  OpBuilder builder(start);
  Value copy = createCopy(builder, start.getLoc(), input);
  pool.add(copy);
  start.replaceInput(copy);
}

void Assigner::visit(Operation *op) {
  if (auto start = dyn_cast<FlatStartOpInterface>(op);
      start && start.getCondition() && start.getInFlight())
    keepOperand(start);
  if (auto wait = dyn_cast<FlatWaitOp>(op); wait && wait.getResult())
    return pool.setRoot(wait.getResult(), pool.getRoot(wait.getDestination()));
  if (auto flat = dyn_cast<FlatOpInterface>(op)) {
    if (cast<DestinationStyleOpInterface>(op).hasPureTensorSemantics())
      assign(flat);
    return;
  }
  if (auto taken = dyn_cast<SplitOp>(op))
    return concats.addSplit(taken);
  if (auto concat = dyn_cast<ConcatOp>(op))
    return concats.lower(concat);
  if (isa<PackOp>(op) ||
      (isa<LoadOp>(op) && isa<TensorType>(op->getResult(0).getType())) ||
      (isa<bufferization::ToTensorOp>(op) &&
       findArgumentUpdate(op->getResult(0))))
    return pool.add(op->getResult(0));
  if (isa<tensor::ExtractSliceOp, UnpackOp>(op))
    for (Value result : op->getResults())
      pool.setRoot(result, pool.getRoot(op->getOperand(0)));
}

namespace {
struct AssignDestinationsPass
    : public ddp::impl::DDPAssignDestinationsPassBase<AssignDestinationsPass> {
  void runOnOperation() override {
    Assigner().run(getOperation().getFunctionBody());
  }
};
} // namespace
