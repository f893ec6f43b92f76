// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-yield-in-place: makes every iteration of a loop leave its tensors in the
// memory where it found those of the previous iteration, as One-Shot Bufferize
// requires. A copy that turns out to copy a buffer onto itself folds away after
// bufferization.

#include "../Analysis/MemoryUses.h"
#include "../Analysis/ProgramWalk.h"
#include "Utils/Arrays.h"
#include "Utils/InPlaceChain.h"

#define GEN_PASS_DEF_DDPYIELDINPLACEPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

/// True if `value` is `argument` after any number of in-place updates.
static bool isUpdateOf(Value value, Value argument) {
  while (OpOperand *link = getTiedOperand(value))
    value = link->get();
  return value == argument;
}

/// Returns the operands of `terminator` that may share memory with an argument
/// which another operand overwrites; all operands if the uses of that memory
/// cannot be followed.
static llvm::SmallSetVector<OpOperand *, 4>
findEndangered(Operation *terminator, MutableArrayRef<OpOperand> operands,
               ValueRange arguments) {
  llvm::SmallSetVector<OpOperand *, 4> endangered;
  for (auto [argument, own] : llvm::zip_first(arguments, operands)) {
    if (!isa<RankedTensorType>(argument.getType()))
      continue;
    auto add = [&, argument = argument, own = &own](OpOperand &operand) {
      if (&operand != own || !isUpdateOf(operand.get(), argument))
        endangered.insert(&operand);
    };
    WalkResult result = visitMemoryUses(argument, [&](OpOperand &use) {
      if (use.getOwner() != terminator)
        return WalkResult::advance();
      add(use);
      return WalkResult::skip();
    });
    if (result.wasInterrupted())
      for (OpOperand &operand : operands)
        if (isa<RankedTensorType>(operand.get().getType()))
          add(operand);
  }
  return endangered;
}

/// Makes `terminator` leave each tensor among `operands` in the memory of the
/// argument at the same position. Operands that might be overwritten first are
/// copied to separate memory.
static void leaveInArguments(Operation *terminator,
                             MutableArrayRef<OpOperand> operands,
                             ValueRange arguments) {
  OpBuilder builder(terminator);
  Location loc = terminator->getLoc();
  for (OpOperand *operand : findEndangered(terminator, operands, arguments))
    operand->set(createCopy(builder, loc, operand->get()));
  for (auto [argument, operand] : llvm::zip_first(arguments, operands))
    if (isa<RankedTensorType>(argument.getType()))
      operand.set(bufferization::MaterializeInDestinationOp::create(
                      builder, loc, argument.getType(), operand.get(), argument)
                      .getResult());
}

static MutableArrayRef<OpOperand> getOperands(MutableOperandRange range) {
  return range.empty() ? MutableArrayRef<OpOperand>()
                       : MutableArrayRef<OpOperand>(&range[0], range.size());
}

static void rewrite(scf::ForOp loop) {
  leaveInArguments(
      loop.getBody()->getTerminator(),
      loop.getYieldedValuesMutable().value_or(MutableArrayRef<OpOperand>()),
      loop.getRegionIterArgs());
}

/// True if both regions of the loop have the same tensors in order.
static bool hasAlignedTensors(scf::WhileOp loop) {
  TypeRange before = ValueRange(loop.getBeforeArguments()).getTypes();
  TypeRange after = ValueRange(loop.getAfterArguments()).getTypes();
  for (size_t i = 0; i < std::max(before.size(), after.size()); ++i) {
    Type first = i < before.size() ? before[i] : Type();
    Type second = i < after.size() ? after[i] : Type();
    if (first != second && (isa_and_nonnull<TensorType>(first) ||
                            isa_and_nonnull<TensorType>(second)))
      return false;
  }
  return true;
}

/// Adds a position for each tensor that the first region passes to the second,
/// next to those of the tensors that the second passes back. Both regions then
/// have all of these positions; the second region's other values follow.
static scf::WhileOp alignTensors(scf::WhileOp loop) {
  OpBuilder builder(loop);
  Location loc = loop.getLoc();
  SmallVector<Value> inits(loop.getInits());
  SmallVector<unsigned>
      places; // Positions of the old arguments in the new second region.
  unsigned numBefore = inits.size();
  scf::ConditionOp condition = loop.getConditionOp();
  SmallVector<Value> tensors, others;
  for (Value value : condition.getArgs()) {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    places.push_back(type ? tensors.size() : others.size());
    (type ? tensors : others).push_back(value);
    if (type)
      inits.push_back(
          tensor::EmptyOp::create(builder, loc, type, ValueRange()));
  }
  for (auto [value, place] : llvm::zip(condition.getArgs(), places))
    place += isa<RankedTensorType>(value.getType())
                 ? numBefore
                 : numBefore + tensors.size();

  Block *before = loop.getBeforeBody();
  for (Value tensor : tensors)
    before->addArgument(tensor.getType(), loc);
  SmallVector<Value> handed(before->getArguments().take_front(numBefore));
  llvm::append_range(handed, tensors);
  llvm::append_range(handed, others);
  condition.getArgsMutable().assign(handed);

  auto aligned =
      scf::WhileOp::create(builder, loc, ValueRange(handed).getTypes(), inits);
  aligned->setDiscardableAttrs(loop->getDiscardableAttrDictionary());
  aligned.getBefore().takeBody(loop.getBefore());
  Block *after = builder.createBlock(&aligned.getAfter());
  for (Value value : handed)
    after->addArgument(value.getType(), loc);
  SmallVector<Value> arguments, results;
  for (unsigned place : places) {
    arguments.push_back(after->getArgument(place));
    results.push_back(aligned.getResult(place));
  }
  Block *old = loop.getAfterBody();
  for (auto [from, to] : llvm::zip(old->getArguments(), arguments))
    from.replaceAllUsesWith(to);
  after->getOperations().splice(after->end(), old->getOperations());
  aligned.getYieldOp().getResultsMutable().append(
      after->getArguments().slice(numBefore, tensors.size()));
  loop.replaceAllUsesWith(results);
  loop.erase();
  return aligned;
}

static void rewrite(scf::WhileOp loop) {
  if (!hasAlignedTensors(loop))
    loop = alignTensors(loop);
  scf::ConditionOp condition = loop.getConditionOp();
  size_t numShared = std::min(loop.getBeforeArguments().size(),
                              loop.getAfterArguments().size());
  leaveInArguments(
      condition, getOperands(condition.getArgsMutable()).take_front(numShared),
      loop.getBeforeArguments().take_front(numShared));
  scf::YieldOp yield = loop.getYieldOp();
  leaveInArguments(yield,
                   getOperands(yield.getResultsMutable()).take_front(numShared),
                   loop.getAfterArguments().take_front(numShared));
}

namespace {
struct YieldInPlacePass
    : public ddp::impl::DDPYieldInPlacePassBase<YieldInPlacePass> {
  void runOnOperation() override {
    // Inner loops first, so that the values they yield are known.
    bool hasLoops = false;
    walkProgram(getOperation(), [&](Operation *op) {
      hasLoops |= isa<scf::ForOp, scf::WhileOp>(op);
      if (auto loop = dyn_cast<scf::ForOp>(op))
        rewrite(loop);
      else if (auto loop = dyn_cast<scf::WhileOp>(op))
        rewrite(loop);
    });
    if (!hasLoops)
      markAllAnalysesPreserved();
  }
};
} // namespace
