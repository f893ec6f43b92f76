//===- AssignDestinations.cpp ----------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-assign-destinations: gives every operation of the algebra memory to write
// to, as an `into` operand. A wrong choice costs a copy, never a wrong result:
// One-Shot Bufferize checks each of them.
//
//===----------------------------------------------------------------------===//

#include "InPlaceChain.h"
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Interfaces/LoopLikeInterface.h"

namespace mlir::ddp {
#define GEN_PASS_DEF_DDPASSIGNDESTINATIONSPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h.inc"
} // namespace mlir::ddp

using namespace mlir;
using namespace mlir::ddp;

static OpFoldResult getIndex(OpBuilder &builder, int64_t value) {
  return builder.getIndexAttr(value);
}

/// The offset of a slice. One without elements begins at 0: it may stand at the
/// end, which is out of bounds.
static OpFoldResult getOffset(OpBuilder &builder, int64_t offset,
                              int64_t size) {
  return getIndex(builder, size == 0 ? 0 : offset);
}

namespace {
/// Assigns destinations in one walk over a function. `roots` maps a value to
/// the buffer that it will live in, named by the value that makes the buffer;
/// buffers that are not ours to overwrite have no root.
class Assigner {
public:
  void run(Region &region) {
    for (Block &block : region)
      for (Operation &op : llvm::make_early_inc_range(block)) {
        visit(&op);
        for (Region &nested : op.getRegions())
          run(nested);
      }
  }

private:
  void visit(Operation *op);
  void assign(AlgebraOpInterface op);
  void lower(ConcatOp op);
  Value chooseDestination(AlgebraOpInterface op);
  Value getConcatDestination(ConcatOp concat, Operation *before);

  void setRoot(Value value, Value root) {
    if (!root)
      return;
    roots[value] = root;
    aliases[root].push_back(value);
  }
  /// Whether nothing reads or writes the buffer `root` at or after `op`, but
  /// for op's own operand `value`.
  bool isDeadAfter(Value root, Value value, Operation *op);

  llvm::DenseMap<Value, Value> roots;
  llvm::DenseMap<Value, SmallVector<Value>> aliases;
  llvm::DenseMap<Operation *, Value> concatDestinations;
};
} // namespace

bool Assigner::isDeadAfter(Value root, Value value, Operation *op) {
  // The next iteration of a loop needs what comes from outside of it.
  Operation *ancestor = root.getParentBlock()->findAncestorOpInBlock(*op);
  if (!ancestor)
    return false;
  for (Operation *around = op; around != ancestor;) {
    around = around->getParentOp();
    if (isa<LoopLikeOpInterface>(around))
      return false;
  }
  for (Value alias : aliases[root])
    for (OpOperand &use : alias.getUses()) {
      if (use.getOwner() == op) {
        if (alias != value)
          return false;
        continue;
      }
      Operation *user = op->getBlock()->findAncestorOpInBlock(*use.getOwner());
      if (!user || !user->isBeforeInBlock(op))
        return false;
    }
  return true;
}

/// The tensor in which a concat's parts are put together; made where its first
/// part is computed.
Value Assigner::getConcatDestination(ConcatOp concat, Operation *before) {
  Value &destination = concatDestinations[concat];
  if (!destination) {
    OpBuilder builder(before);
    auto type = cast<RankedTensorType>(concat.getType());
    destination = tensor::EmptyOp::create(
        builder, concat.getLoc(), type.getShape(), type.getElementType());
    setRoot(destination, destination);
  }
  return destination;
}

Value Assigner::chooseDestination(AlgebraOpInterface op) {
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  if (op.isElementwise())
    for (Value operand : op->getOperands()) {
      Value root = roots.lookup(operand);
      if (operand.getType() == type && root && isDeadAfter(root, operand, op))
        return operand;
    }
  OpBuilder builder(op);
  Value empty = tensor::EmptyOp::create(builder, op.getLoc(), type.getShape(),
                                        type.getElementType());
  setRoot(empty, empty);
  return empty;
}

void Assigner::assign(AlgebraOpInterface op) {
  MutableOperandRange destination = op.getDestinationMutable();
  Value result = op->getResult(0);
  if (!destination.empty()) {
    setRoot(result, roots.lookup(destination[0].get()));
    return;
  }
  Value chosen;
  // A part of a concat in the same block is computed in its place.
  auto concat = result.hasOneUse() ? dyn_cast<ConcatOp>(*result.user_begin())
                                   : ConcatOp();
  if (concat && concat->getBlock() == op->getBlock()) {
    Value whole = getConcatDestination(concat, op);
    int64_t offset = 0;
    for (Value part : concat.getParts()) {
      if (part == result)
        break;
      offset += getNumElementsOf(part.getType());
    }
    OpBuilder builder(op);
    int64_t size = getNumElementsOf(result.getType());
    chosen = tensor::ExtractSliceOp::create(
        builder, op.getLoc(), whole, {getOffset(builder, offset, size)},
        {getIndex(builder, size)}, {getIndex(builder, 1)});
    setRoot(chosen, roots.lookup(whole));
  } else {
    chosen = chooseDestination(op);
  }
  destination.assign(chosen);
  setRoot(result, roots.lookup(chosen));
}

void Assigner::lower(ConcatOp op) {
  OpBuilder builder(op);
  Value whole = getConcatDestination(op, op);
  Value root = roots.lookup(whole);
  int64_t offset = 0;
  for (Value part : op.getParts()) {
    int64_t size = getNumElementsOf(part.getType());
    whole = tensor::InsertSliceOp::create(
        builder, op.getLoc(), part, whole, {getOffset(builder, offset, size)},
        {getIndex(builder, size)}, {getIndex(builder, 1)});
    setRoot(whole, root);
    offset += size;
  }
  op.replaceAllUsesWith(whole);
  op.erase();
}

void Assigner::visit(Operation *op) {
  if (auto algebraOp = dyn_cast<AlgebraOpInterface>(op)) {
    if (op->getNumResults() == 1)
      assign(algebraOp);
    return;
  }
  if (auto concat = dyn_cast<ConcatOp>(op))
    return lower(concat);
  if (isa<PackOp>(op))
    return setRoot(op->getResult(0), op->getResult(0));
  if (isa<tensor::ExtractSliceOp, UnpackOp>(op))
    for (Value result : op->getResults())
      setRoot(result, roots.lookup(op->getOperand(0)));
}

/// Lets every iteration leave its values where it found those of the last one,
/// as One-Shot Bufferize demands. Where they are there already the copy folds
/// away.
static void yieldInPlace(scf::ForOp loop) {
  Operation *yield = loop.getBody()->getTerminator();
  OpBuilder builder(yield);
  Location loc = yield->getLoc();
  // What goes from one argument to another waits outside of both, before any of
  // them is overwritten.
  for (auto [argument, operand] :
       llvm::zip(loop.getRegionIterArgs(), yield->getOpOperands())) {
    Value value = operand.get(), start = value;
    while (OpOperand *link = getTiedOperand(start))
      start = link->get();
    auto type = dyn_cast<RankedTensorType>(value.getType());
    if (type && start != argument &&
        llvm::is_contained(loop.getRegionIterArgs(), start))
      operand.set(bufferization::AllocTensorOp::create(
          builder, loc, type, ValueRange(), /*copy=*/value));
  }
  for (auto [argument, operand] :
       llvm::zip(loop.getRegionIterArgs(), yield->getOpOperands()))
    if (isa<RankedTensorType>(argument.getType()))
      operand.set(bufferization::MaterializeInDestinationOp::create(
                      builder, loc, argument.getType(), operand.get(), argument)
                      .getResult());
}

namespace {
struct AssignDestinationsPass
    : public ddp::impl::DDPAssignDestinationsPassBase<AssignDestinationsPass> {
  using DDPAssignDestinationsPassBase::DDPAssignDestinationsPassBase;
  void runOnOperation() override {
    Assigner().run(getOperation().getFunctionBody());
    getOperation()->walk(yieldInPlace);
  }
};
} // namespace
