// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "ConcatPlacement.h"
#include "../../Analysis/MemoryUses.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::ddp;

PartPlace::PartPlace(OpBuilder &builder, ConcatOp concat, unsigned part) {
  int64_t begin = 0;
  for (Value before : concat.getParts().take_front(part))
    begin += getNumElementsOf(before.getType());
  int64_t numElements = getNumElementsOf(concat.getParts()[part].getType());
  // An empty slice starts at 0, because its own offset may be the end, which is
  // out of bounds.
  offset = builder.getIndexAttr(numElements == 0 ? 0 : begin);
  size = builder.getIndexAttr(numElements);
  stride = builder.getIndexAttr(1);
}

OpOperand *mlir::ddp::findConcatUse(FlatOpInterface op, Value result) {
  if (op->getNumResults() != 1 || !result.hasOneUse() ||
      getNumElementsOf(result.getType()) == 0)
    return nullptr;
  OpOperand &use = *result.use_begin();
  auto concat = dyn_cast<ConcatOp>(use.getOwner());
  bool isPart = concat && concat->getBlock() == op->getBlock() &&
                use.getOperandNumber() < concat.getParts().size();
  return isPart ? &use : nullptr;
}

bool mlir::ddp::isInSamePlace(OpOperand &use, Value part) {
  auto concat = cast<ConcatOp>(use.getOwner());
  auto split = part.getDefiningOp<SplitOp>();
  return concat.getParts().getTypes() == split.getParts().getTypes() &&
         split.getParts()[use.getOperandNumber()] == part;
}

/// Returns the concat's assembly. Its tensor is created before the operation
/// that computes the first part.
ConcatPlacement::Assembly &ConcatPlacement::getAssembly(ConcatOp concat,
                                                        Operation *before) {
  Assembly &assembly = assemblies[concat];
  if (!assembly.whole)
    assembly.whole = pool.create(before, concat.getLoc(), concat.getType());
  return assembly;
}

Value ConcatPlacement::createPlace(FlatOpInterface op, OpOperand &use,
                                   bool isInSplit) {
  auto concat = cast<ConcatOp>(use.getOwner());
  OpBuilder builder(op);
  if (isInSplit && !assemblies.contains(concat)) {
    Value whole = tensor::EmptyOp::create(builder, concat.getLoc(),
                                          concat.getType(), ValueRange());
    pool.setRoot(whole, whole);
    auto places = SplitOp::create(builder, concat.getLoc(),
                                  concat.getParts().getTypes(), whole);
    addSplit(places);
    return places.getParts()[use.getOperandNumber()];
  }
  Value whole = getAssembly(concat, op).whole;
  PartPlace place(builder, concat, use.getOperandNumber());
  Value slice = tensor::ExtractSliceOp::create(builder, op.getLoc(), whole,
                                               {place.offset}, {place.size},
                                               {place.stride});
  pool.setRoot(slice, pool.getRoot(whole));
  return slice;
}

/// Inserts a part into its concat's tensor, right after the operation that
/// computes it: One-Shot Bufferize puts a slice and its insertion in the same
/// memory only if there is no other insertion in between.
void ConcatPlacement::insert(OpBuilder &builder, ConcatOp concat,
                             unsigned number) {
  Assembly &assembly = assemblies[concat];
  Value part = concat.getParts()[number], &whole = assembly.whole;
  assembly.inserted.insert(number);
  if (getNumElementsOf(part.getType()) == 0)
    return;
  PartPlace place(builder, concat, number);
  Value root = pool.getRoot(whole);
  whole = tensor::InsertSliceOp::create(builder, concat.getLoc(), part, whole,
                                        {place.offset}, {place.size},
                                        {place.stride});
  pool.setRoot(whole, root);
}

void ConcatPlacement::insertResult(FlatOpInterface op, Value result) {
  OpOperand *use = findConcatUse(op, result);
  if (!use || !assemblies.contains(use->getOwner()))
    return;
  OpBuilder after(op->getBlock(), std::next(op->getIterator()));
  insert(after, cast<ConcatOp>(use->getOwner()), use->getOperandNumber());
}

void ConcatPlacement::addSplit(SplitOp op) {
  Value root = pool.getRoot(op.getBucket());
  bool isTaken = !root || !isLastUser(op, root, WalkResult::skip());
  if (!isTaken)
    splits[op.getBucket().getType()].push_back(op);
  for (Value part : op.getParts())
    pool.setRoot(part, isTaken ? root : part);
}

Value ConcatPlacement::findInSplit(FlatOpInterface op, Value result) {
  OpOperand *use = findUseInPlace(
      result, [](OpOperand &use) { return isa<ConcatOp>(use.getOwner()); });
  if (!use)
    return {};
  Value whole = use->getOwner()->getResult(0);
  unsigned number = use->getOperandNumber();
  auto found = splits.find(whole.getType());
  if (found == splits.end())
    return {};
  ArrayRef<SplitOp> all = found->second;
  for (SplitOp split :
       llvm::reverse(all.take_back(BufferPool::maxCandidates))) {
    if (number >= split.getNumResults())
      continue;
    Value part = split.getResult(number);
    LoadOp load = pool.getState(part);
    if (part.getType() == result.getType() &&
        (!load || endsInStore(whole, load.getState())) &&
        pool.mayLiveIn(part, result) && pool.isDeadAfter(part, Value(), op))
      return part;
  }
  return {};
}

/// Returns the split whose operand can become the concat's memory without a
/// copy: its parts hold the concat's parts, and nothing else is needed there.
SplitOp ConcatPlacement::findSplit(ConcatOp concat) {
  if (concat.getParts().empty())
    return {};
  Value first = pool.getRoot(concat.getParts().front());
  auto split = first ? first.getDefiningOp<SplitOp>() : SplitOp();
  if (!split || concat.getParts().getTypes() != split.getParts().getTypes() ||
      !llvm::all_of(llvm::zip(concat.getParts(), split.getParts()),
                    [&](auto parts) {
                      auto [ours, theirs] = parts;
                      return pool.getRoot(ours) == theirs;
                    }))
    return {};
  Value whole = pool.getRoot(split.getBucket());
  return isLastUser(concat, whole, WalkResult::advance()) &&
                 pool.mayLiveIn(whole, concat.getResult())
             ? split
             : SplitOp();
}

static bool endsInArgument(ConcatOp op) {
  return llvm::any_of(op->getUsers(), [](Operation *user) {
    auto move = dyn_cast<bufferization::MaterializeInDestinationOp>(user);
    return move && isa<BlockArgument>(move.getDest());
  });
}

void ConcatPlacement::lower(ConcatOp op) {
  if (SplitOp split = findSplit(op)) {
    op.getDestinationMutable().assign(split.getBucket());
    pool.reassemble(split);
    return pool.setRoot(op.getResult(), pool.getRoot(split.getBucket()));
  }
  if (!assemblies.contains(op) &&
      (op.getParts().size() > maxInserted || endsInArgument(op))) {
    Value destination = pool.findDead(op, op.getResult());
    if (!destination)
      destination = pool.create(op, op.getLoc(), op.getType());
    op.getDestinationMutable().assign(destination);
    return pool.setRoot(op.getResult(), destination);
  }
  OpBuilder builder(op);
  const Assembly &assembly = getAssembly(op, op);
  for (unsigned number = 0; number < op.getParts().size(); ++number)
    if (!assembly.inserted.contains(number))
      insert(builder, op, number);
  op.replaceAllUsesWith(assembly.whole);
  op.erase();
}
