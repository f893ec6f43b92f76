// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks that several operations of the dialect share.

#include "Verifiers.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::ddp;

LogicalResult mlir::ddp::verifyGroup(Operation *op, FlatSymbolRefAttr group,
                                     SymbolTableCollection &symbols) {
  if (!group)
    return success();
  Operation *target = symbols.lookupNearestSymbolFrom(op, group);
  if (!target)
    return op->emitOpError()
           << "expected process group " << group << " to be declared";
  if (isa<ProcessGroupOp>(target))
    return success();
  return (op->emitOpError() << "expected " << group << " to be a process group")
             .attachNote(target->getLoc())
         << "the name refers to this";
}

LogicalResult mlir::ddp::verifyCount(Operation *op, size_t found,
                                     size_t expected, StringRef what) {
  if (found == expected)
    return success();
  return op->emitOpError() << "expected " << expected << " " << what
                           << ", but got " << found;
}

LogicalResult mlir::ddp::verifyOneKind(Operation *op, TypeRange types) {
  for (Type type : types)
    if (isa<ShapedType>(type) && type.getTypeID() != types.front().getTypeID())
      return op->emitOpError() << "expected only tensors or only memrefs, but "
                               << "got " << types.front() << " and " << type;
  return success();
}

LogicalResult
mlir::ddp::verifyReductionSymbols(CollectiveOpInterface op,
                                  SymbolTableCollection &symbols) {
  if (failed(verifyGroup(op, op.getGroupAttr(), symbols)))
    return failure();
  FlatSymbolRefAttr error = getErrorState(op);
  if (!error)
    return success();
  auto state = symbols.lookupNearestSymbolFrom<StateOp>(op, error);
  if (!state)
    return op->emitOpError()
           << "expected " << error
           << ", which holds the error to feed back, to be a state";
  auto kept = dyn_cast<BucketType>(state.getType());
  Type type = op.getInput().getType();
  if (kept && kept.getElementType() == getElementTypeOf(type) &&
      kept.getNumElements() == getNumElementsOf(type))
    return success();
  return (op->emitOpError()
          << "expected the error of " << getNumElementsOf(type)
          << " elements of " << getElementTypeOf(type) << ", but got "
          << state.getType())
             .attachNote(state.getLoc())
         << "this is what " << error << " keeps";
}

LogicalResult mlir::ddp::verifyWire(CollectiveOpInterface op) {
  TypeAttr wire = op.getWireAttr();
  if (!wire || isa<Float16Type, BFloat16Type, EncodedType>(wire.getValue()))
    return verifyStep(op);
  return op->emitOpError()
         << "expected wire type f16 or bf16 or an encoding, but got "
         << wire.getValue();
}

LogicalResult mlir::ddp::verifyStep(CollectiveOpInterface op) {
  TypeAttr wire = op.getWireAttr();
  auto encoding = wire ? dyn_cast<EncodedType>(wire.getValue()) : EncodedType();
  bool isStochastic = encoding && encoding.isStochastic();
  if (bool(op.getStep()) == isStochastic)
    return success();
  return op->emitOpError()
         << (isStochastic ? "expected a step, since the wire type rounds "
                            "stochastically"
                          : "expected no step, since no wire type rounds "
                            "stochastically");
}

/// Returns the `scf.if` on `condition` that contains `wait`, or null.
static scf::IfOp getChoice(Operation *start, Operation *wait, Value condition) {
  auto choice = dyn_cast<scf::IfOp>(wait->getParentOp());
  return choice && choice->getBlock() == start->getBlock() &&
                 choice.getCondition() == condition
             ? choice
             : scf::IfOp();
}

LogicalResult mlir::ddp::verifyIsAwaited(Operation *start, StringRef wait,
                                         Value condition) {
  // The wait in each branch; without a condition there is only one.
  SmallVector<Operation *, 2> awaiting(condition ? 2 : 1, nullptr);
  for (Value result : start->getResults()) {
    if (result.getNumUses() != awaiting.size())
      return start->emitOpError()
             << "expected to be awaited exactly once"
             << (condition ? " in each branch" : "") << ", but its "
             << "result has " << result.getNumUses() << " uses";
    llvm::SmallPtrSet<Operation *, 2> seen;
    for (Operation *user : result.getUsers()) {
      bool isWait = user->getName().getStringRef() == wait;
      bool isInPlace = condition ? bool(getChoice(start, user, condition))
                                 : user->getBlock() == start->getBlock();
      if (isWait && isInPlace && seen.insert(user).second) {
        unsigned branch =
            condition ? user->getParentRegion()->getRegionNumber() : 0;
        Operation *&known = awaiting[branch];
        Operation *other = condition ? awaiting[1 - branch] : nullptr;
        if ((!known || known == user) &&
            (!other || other->getParentOp() == user->getParentOp())) {
          known = user;
          continue;
        }
      }
      return (start->emitOpError()
              << "expected to be awaited by one '" << wait << "' in "
              << (condition ? "each branch of an 'scf.if' on its condition, in "
                            : "")
              << "the same block, but its result is used by '"
              << user->getName() << "'" << (isWait ? " elsewhere" : ""))
                 .attachNote(user->getLoc())
             << "this is the use";
    }
  }
  return success();
}

Operation *mlir::ddp::findWait(Value awaited) {
  for (Operation *user : awaited.getUsers())
    if (!isIdleWait(user))
      return user;
  return nullptr;
}
