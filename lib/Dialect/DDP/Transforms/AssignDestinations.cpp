//===- AssignDestinations.cpp ----------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-assign-destinations: lets operations on flat tensors write to existing
// memory. One-Shot Bufferize checks these choices, but it does not know
// everything in the memory of a bucket or a state: the tensors unpacked from a
// bucket, and the next load of a state. So this pass reuses memory only where
// MemoryUses.h proves that its contents are dead.
//
//===----------------------------------------------------------------------===//

#include "../Analysis/MemoryUses.h"
#include "../Analysis/UpdatedArgument.h"
#include "../Analysis/UsesInPlace.h"
#include "Utils/ConcatPlaces.h"
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

namespace mlir::ddp {
#define GEN_PASS_DEF_DDPASSIGNDESTINATIONSPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h.inc"
} // namespace mlir::ddp

using namespace mlir;
using namespace mlir::ddp;

namespace {
/// Assigns destinations in one walk over a function. `roots` maps a value to
/// the buffer that should hold it. A buffer is named by the value that creates
/// it: a pack, an empty tensor, a load of a state, the initial contents of an
/// argument that a result replaces, or a part of a split bucket. Buffers that
/// this pass must not overwrite have no root.
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
  void keepOperand(FlatStartOpInterface start);
  void split(SplitOp op);
  void putTogether(ConcatOp op);
  void lower(ConcatOp op);
  void aliasResults(scf::IfOp op);
  void yieldInOneBuffer(scf::IfOp op, OpResult result);
  Value createConcatSlice(FlatOpInterface op, OpOperand &use);
  Value createConcatSplit(FlatOpInterface op, OpOperand &use);
  void insertPart(OpBuilder &builder, ConcatOp concat, unsigned number,
                  Value part);
  Value getWhole(Value root);
  LoadOp getState(Value root);
  StoreOp findNextStore(Operation *op, FlatSymbolRefAttr state);
  bool mayLiveIn(Value root, Value result);
  SplitOp findSplit(ConcatOp concat);
  Value findPlaceInSplit(FlatOpInterface op, Value result);
  Value findDyingOperand(FlatOpInterface op, OpResult result);
  Value findYieldedBuffer(FlatOpInterface op, Value result);
  Value findDeadBuffer(Operation *op, Value result);
  Value findDestination(FlatOpInterface op, OpResult result);
  Value getConcatDestination(ConcatOp concat, Operation *before);

  void setRoot(Value value, Value root) {
    if (!root)
      return;
    roots[value] = root;
    if (value == root)
      buffers[root.getType()].push_back(root);
  }
  /// True if nothing reads or writes the buffer `root` at or after `op`, except
  /// op's own operand `value`.
  bool isDeadAfter(Value root, Value value, Operation *op);

  llvm::DenseMap<Value, Value> roots;
  /// Roots by type, in the order in which they were found.
  llvm::DenseMap<Type, SmallVector<Value>> buffers;
  /// How often each buffer has been reused.
  llvm::DenseMap<Value, unsigned> numReuses;
  /// For each block queried so far, its stores by state, in order. This pass
  /// neither adds nor removes stores.
  llvm::DenseMap<Block *, llvm::DenseMap<Attribute, SmallVector<StoreOp, 1>>>
      storesIn;
  /// The tensor in which each concat is assembled, with the parts inserted so
  /// far.
  llvm::DenseMap<Operation *, Value> concatDestinations;
  llvm::DenseSet<std::pair<Operation *, unsigned>> insertedParts;
  /// Splits of buckets of which only the parts are still needed, by bucket
  /// type, and the buffers that hold those buckets.
  llvm::DenseMap<Type, SmallVector<SplitOp>> splits;
  llvm::DenseMap<Operation *, Value> wholes;
  /// Splits whose parts were reassembled in their own memory. From then on that
  /// memory belongs to the whole.
  llvm::DenseSet<Operation *> reassembled;
};
} // namespace

/// Returns the buffer that contains a part of a split bucket, or `root` itself.
Value Assigner::getWhole(Value root) {
  auto split = root.getDefiningOp<SplitOp>();
  return split ? wholes.lookup(split) : root;
}

/// Returns the load of the state that owns a buffer's memory, or null.
LoadOp Assigner::getState(Value root) {
  return getWhole(root).getDefiningOp<LoadOp>();
}

/// Returns the first store to `state` after `op` in its block, or null.
StoreOp Assigner::findNextStore(Operation *op, FlatSymbolRefAttr state) {
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

/// True if the rules for states and arguments allow `result` to live in the
/// buffer `root`. The memory of a state may be overwritten only if the state
/// gets a new value later, and only by values that are dead by then. The same
/// holds for an argument.
bool Assigner::mayLiveIn(Value root, Value result) {
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

bool Assigner::isDeadAfter(Value root, Value value, Operation *op) {
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

/// Returns the tensor in which a concat's parts are assembled. It is created
/// where the first part is computed.
Value Assigner::getConcatDestination(ConcatOp concat, Operation *before) {
  Value &destination = concatDestinations[concat];
  if (!destination) {
    destination = createEmpty(before, concat.getLoc(), concat.getType());
    setRoot(destination, destination);
  }
  return destination;
}

Value Assigner::createConcatSlice(FlatOpInterface op, OpOperand &use) {
  auto concat = cast<ConcatOp>(use.getOwner());
  Value whole = getConcatDestination(concat, op);
  OpBuilder builder(op);
  PartPlace place(builder, concat, use.getOperandNumber());
  Value slice = tensor::ExtractSliceOp::create(builder, op.getLoc(), whole,
                                               {place.offset}, {place.size},
                                               {place.stride});
  setRoot(slice, roots.lookup(whole));
  return slice;
}

/// Like `createConcatSlice`, for a concat whose parts could be computed in
/// parts of another bucket. Creates memory and splits it into the concat's
/// parts. Each part is then a separate alias set, where insertions would form a
/// chain. The memory is never reused, since that would overwrite the parts.
Value Assigner::createConcatSplit(FlatOpInterface op, OpOperand &use) {
  auto concat = cast<ConcatOp>(use.getOwner());
  Value whole = createEmpty(op, concat.getLoc(), concat.getType());
  roots[whole] = whole;
  OpBuilder builder(op);
  auto places = SplitOp::create(builder, concat.getLoc(),
                                concat.getParts().getTypes(), whole);
  split(places);
  return places.getParts()[use.getOperandNumber()];
}

/// Inserts a part into its concat's tensor, right after the operation that
/// computes it: One-Shot Bufferize puts a slice and its insertion in the same
/// memory only if there is no other insertion in between.
void Assigner::insertPart(OpBuilder &builder, ConcatOp concat, unsigned number,
                          Value part) {
  insertedParts.insert({concat, number});
  if (getNumElementsOf(part.getType()) == 0)
    return;
  PartPlace place(builder, concat, number);
  Value &whole = concatDestinations[concat];
  Value root = roots.lookup(whole);
  whole = tensor::InsertSliceOp::create(builder, concat.getLoc(), part, whole,
                                        {place.offset}, {place.size},
                                        {place.stride});
  setRoot(whole, root);
}

/// Returns an operand of the result's type that is dead after `op`. Prefers
/// memory of a state, because the state's new value has to end up there anyway.
Value Assigner::findDyingOperand(FlatOpInterface op, OpResult result) {
  Value found;
  for (OpOperand &operand : op->getOpOperands()) {
    Value value = operand.get(), root = roots.lookup(value);
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

/// Returns the buffer in which the then branch yields the same result, or null.
Value Assigner::findYieldedBuffer(FlatOpInterface op, Value result) {
  auto choice = dyn_cast<scf::IfOp>(op->getParentOp());
  if (!choice || op->getParentRegion() != &choice.getElseRegion())
    return {};
  for (OpOperand &use : result.getUses()) {
    if (use.getOwner() != choice.elseYield())
      continue;
    Value root =
        roots.lookup(choice.thenYield().getOperand(use.getOperandNumber()));
    if (root && root.getType() == result.getType() &&
        root.getParentBlock() == choice->getBlock() &&
        mayLiveIn(root, result) && isDeadAfter(root, Value(), op))
      return root;
  }
  return {};
}

/// Returns a dead buffer of the result's type, or null; a state's memory only
/// for results that are stored to it. Considers only the last few buffers,
/// because a full search is quadratic. So would be a single buffer, since
/// One-Shot Bufferize compares all values of an alias set; `ddp-plan-arena`
/// overlaps buffers anyway.
Value Assigner::findDeadBuffer(Operation *op, Value result) {
  constexpr size_t maxCandidates = 16;
  constexpr unsigned maxReuses = 8;
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

/// For a result that becomes a part of a bucket, returns the same part of a
/// bucket that was split in the same way, so that the concat copies nothing.
/// The bucket of a state is used only if the concat is the state's new value.
Value Assigner::findPlaceInSplit(FlatOpInterface op, Value result) {
  constexpr size_t maxCandidates = 16;
  OpOperand *use = findUseInPlace(
      result, [](OpOperand &use) { return isa<ConcatOp>(use.getOwner()); });
  auto found =
      use ? splits.find(use->getOwner()->getResult(0).getType()) : splits.end();
  if (found == splits.end())
    return {};
  unsigned number = use->getOperandNumber();
  ArrayRef<SplitOp> all = found->second;
  for (SplitOp split : llvm::reverse(all.take_back(maxCandidates))) {
    if (number >= split.getNumResults())
      continue;
    Value part = split.getResult(number);
    LoadOp load = getState(part);
    if (part.getType() == result.getType() &&
        (!load ||
         endsInStore(use->getOwner()->getResult(0), load.getState())) &&
        mayLiveIn(part, result) && isDeadAfter(part, Value(), op))
      return part;
  }
  return {};
}

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
        setRoot(destination, destination);
      }
    }
    chosen.push_back(destination);
  }
  for (auto [init, destination] :
       llvm::zip(inits.getDpsInitsMutable(), chosen)) {
    OpResult result = inits.getTiedOpResult(&init);
    setRoot(result, roots.lookup(destination ? destination : init.get()));
    if (!destination)
      continue;
    if (tensor::EmptyOp placeholder = getPlaceholder(init);
        placeholder != destination.getDefiningOp()) {
      init.set(destination);
      placeholder.erase();
    }
    OpOperand *use = findConcatUse(op, result);
    if (use && concatDestinations.contains(use->getOwner())) {
      OpBuilder behind(op->getBlock(), std::next(op->getIterator()));
      insertPart(behind, cast<ConcatOp>(use->getOwner()),
                 use->getOperandNumber(), result);
    }
  }
}

/// Returns existing memory for a result, or null if there is none.
Value Assigner::findDestination(FlatOpInterface op, OpResult result) {
  // An operand that dies in a part of a bucket passes its memory on to the
  // result, unless the result is a part of something else.
  Value dying = findDyingOperand(op, result);
  Value root = dying ? roots.lookup(dying) : Value();
  OpOperand *use = findConcatUse(op, result);
  bool isInPart = root && root.getDefiningOp<SplitOp>();
  if (isInPart && (!use || isInSamePlace(*use, root)))
    return dying;
  if (Value place = findPlaceInSplit(op, result))
    return place;
  if (use)
    return isInPart && !concatDestinations.contains(use->getOwner())
               ? createConcatSplit(op, *use)
               : createConcatSlice(op, *use);
  if (Value yielded = findYieldedBuffer(op, result))
    return yielded;
  return dying ? dying : findDeadBuffer(op, result);
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
    candidates.insert(roots.lookup(operand.get()));
  }
  auto type = dyn_cast<RankedTensorType>(result.getType());
  // Leave the branches of other programs as they are.
  if (!type || (candidates.size() == 1 && candidates[0] == Value()) ||
      (candidates.size() == 1 && llvm::all_of(yields, [&](OpOperand *yield) {
         return candidates[0].getType() == type;
       })))
    return;
  Value chosen;
  for (Value root : candidates)
    if (root && root.getType() == type && !root.getDefiningOp<LoadOp>() &&
        root.getParentBlock() == op->getBlock() &&
        (getState(root) || mayLiveIn(root, result)) &&
        llvm::all_of(yields, [&](OpOperand *yield) {
          return roots.lookup(yield->get()) == root ||
                 isDeadAfter(root, Value(), yield->getOwner());
        }))
      chosen = root;
  if (!chosen) {
    chosen = createEmpty(op, op.getLoc(), type);
    setRoot(chosen, chosen);
  }
  for (OpOperand *yield : yields) {
    if (roots.lookup(yield->get()) == chosen)
      continue;
    OpBuilder builder(yield->getOwner());
    yield->set(bufferization::MaterializeInDestinationOp::create(
                   builder, op.getLoc(), type, yield->get(), chosen)
                   .getResult());
    setRoot(yield->get(), chosen);
  }
}

/// The value that a branch yields lives on in the result.
void Assigner::aliasResults(scf::IfOp op) {
  if (op.getElseRegion().empty())
    return;
  for (OpResult result : op.getResults()) {
    yieldInOneBuffer(op, result);
    if (Value root =
            roots.lookup(op.thenYield()->getOperand(result.getResultNumber())))
      setRoot(result, root);
  }
}

/// Makes each part of a bucket a buffer if nothing else needs the bucket. It is
/// not reused freely, because the next value of this part will need it.
void Assigner::split(SplitOp op) {
  Value root = roots.lookup(op.getBucket());
  bool isTaken = !root || !runsAtMostOncePer(root, op) ||
                 visitMemoryUses(root, [&](OpOperand &use) {
                   if (use.getOwner() == op)
                     return WalkResult::skip();
                   return requireBefore(use.getOwner(), op);
                 }).wasInterrupted();
  if (!isTaken) {
    splits[op.getBucket().getType()].push_back(op);
    wholes[op] = root;
  }
  for (Value part : op.getParts())
    if (Value buffer = isTaken ? root : part)
      roots[part] = buffer;
}

/// Returns the split whose operand can become the concat's memory without a
/// copy: its parts hold the concat's parts, and nothing else is needed there.
SplitOp Assigner::findSplit(ConcatOp concat) {
  if (concat.getParts().empty())
    return {};
  Value first = roots.lookup(concat.getParts().front());
  auto split = first ? first.getDefiningOp<SplitOp>() : SplitOp();
  if (!split || concat.getParts().getTypes() != split.getParts().getTypes() ||
      !llvm::all_of(llvm::zip(concat.getParts(), split.getParts()),
                    [&](auto parts) {
                      auto [ours, theirs] = parts;
                      return roots.lookup(ours) == theirs;
                    }))
    return {};
  Value whole = wholes.lookup(split);
  bool isDead = runsAtMostOncePer(whole, concat) &&
                !visitMemoryUses(whole, [&](OpOperand &use) {
                   return use.getOwner() == concat
                              ? WalkResult::advance()
                              : requireBefore(use.getOwner(), concat);
                 }).wasInterrupted();
  return isDead && mayLiveIn(whole, concat.getResult()) ? split : SplitOp();
}

/// Lets the parts be copied to new memory, or to the memory of the state whose
/// new value they form.
void Assigner::putTogether(ConcatOp op) {
  Value destination = findDeadBuffer(op, op.getResult());
  if (!destination) {
    destination = createEmpty(op, op.getLoc(), op.getType());
    setRoot(destination, destination);
  }
  op.getDestinationMutable().assign(destination);
  setRoot(op.getResult(), destination);
}

/// True if the result is written to an argument.
static bool endsInArgument(ConcatOp op) {
  return llvm::any_of(op->getUsers(), [](Operation *user) {
    auto move = dyn_cast<bufferization::MaterializeInDestinationOp>(user);
    return move && isa<BlockArgument>(move.getDest());
  });
}

void Assigner::lower(ConcatOp op) {
  if (SplitOp split = findSplit(op)) {
    op.getDestinationMutable().assign(split.getBucket());
    reassembled.insert(split);
    return setRoot(op.getResult(), wholes.lookup(split));
  }
  // Many parts would form a long chain of insertions, and One-Shot Bufferize
  // compares each of them with all others. A concat that ends in an argument
  // may be assembled there.
  constexpr size_t maxInserted = 16;
  if (!concatDestinations.contains(op) &&
      (op.getParts().size() > maxInserted || endsInArgument(op)))
    return putTogether(op);
  OpBuilder builder(op);
  (void)getConcatDestination(op, op);
  for (auto [number, part] : llvm::enumerate(op.getParts()))
    if (!insertedParts.contains({op, unsigned(number)}))
      insertPart(builder, op, number, part);
  op.replaceAllUsesWith(concatDestinations[op]);
  op.erase();
}

/// A conditional start works in the memory of its operand. Copies the operand
/// if anything else needs that memory: a tensor unpacked from it, or a state.
void Assigner::keepOperand(FlatStartOpInterface start) {
  Value input = start.getInputMutable().get(), root = roots.lookup(input);
  if (root && !getState(root) && runsAtMostOncePer(root, start) &&
      !visitMemoryUses(root, [&](OpOperand &use) {
         return use.getOwner() == start ? WalkResult::skip()
                                        : requireBefore(use.getOwner(), start);
       }).wasInterrupted())
    return;
  OpBuilder builder(start);
  Value copy = bufferization::AllocTensorOp::create(
      builder, start.getLoc(), cast<RankedTensorType>(input.getType()),
      ValueRange(), input);
  setRoot(copy, copy);
  start.replaceInput(copy);
}

void Assigner::visit(Operation *op) {
  if (auto start = dyn_cast<FlatStartOpInterface>(op);
      start && start.getCondition() && start.getInFlight())
    keepOperand(start);
  if (auto wait = dyn_cast<FlatWaitOp>(op); wait && wait.getResult())
    return setRoot(wait.getResult(), roots.lookup(wait.getDestination()));
  if (auto flat = dyn_cast<FlatOpInterface>(op)) {
    if (cast<DestinationStyleOpInterface>(op).hasPureTensorSemantics())
      assign(flat);
    return;
  }
  if (auto taken = dyn_cast<SplitOp>(op))
    return split(taken);
  if (auto concat = dyn_cast<ConcatOp>(op))
    return lower(concat);
  if (isa<PackOp>(op) ||
      (isa<LoadOp>(op) && isa<TensorType>(op->getResult(0).getType())) ||
      (isa<bufferization::ToTensorOp>(op) &&
       findArgumentUpdate(op->getResult(0))))
    return setRoot(op->getResult(0), op->getResult(0));
  if (isa<tensor::ExtractSliceOp, UnpackOp>(op))
    for (Value result : op->getResults())
      setRoot(result, roots.lookup(op->getOperand(0)));
}

namespace {
struct AssignDestinationsPass
    : public ddp::impl::DDPAssignDestinationsPassBase<AssignDestinationsPass> {
  using DDPAssignDestinationsPassBase::DDPAssignDestinationsPassBase;
  void runOnOperation() override {
    Assigner().run(getOperation().getFunctionBody());
  }
};
} // namespace
