// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Verifiers and effects of the operations on flat arrays.
// DestinationStyleOpInterface checks that each `into` operand has a result of
// its type.

#include "LowRankLayout.h"
#include "Verifiers.h"

using namespace mlir;
using namespace mlir::ddp;

void mlir::ddp::inferFlatTypes(ValueRange destinations,
                               SmallVectorImpl<Type> &types) {
  for (Type type : destinations.getTypes())
    if (isa<RankedTensorType>(type))
      types.push_back(type);
}

void mlir::ddp::getFlatEffects(
    FlatOpInterface op,
    SmallVectorImpl<MemoryEffects::EffectInstance> &effects) {
  auto inits = cast<DestinationStyleOpInterface>(op.getOperation());
  for (OpOperand &operand : op->getOpOperands()) {
    if (!isa<MemRefType>(operand.get().getType()))
      continue;
    if (inits.isDpsInit(&operand))
      effects.emplace_back(MemoryEffects::Write::get(), &operand);
    else
      effects.emplace_back(MemoryEffects::Read::get(), &operand);
  }
}

/// Verifies C1 and C2 of elementwise operations.
static LogicalResult verifyElementwise(Operation *op) {
  if (failed(verifyOneKind(op, op->getOperandTypes())))
    return failure();
  Type first = op->getOperand(0).getType();
  for (Type type : op->getOperandTypes())
    if (isa<ShapedType>(type) && !haveSameElements(first, type))
      return op->emitOpError() << "expected arrays of one type, but got "
                               << first << " and " << type;
  return success();
}

LogicalResult FlatAddOp::verify() { return verifyElementwise(*this); }

LogicalResult FlatSubOp::verify() { return verifyElementwise(*this); }

LogicalResult FlatCastOp::verify() {
  auto from = cast<ShapedType>(getInput().getType());
  auto to = cast<ShapedType>(getDestination().getType());
  if (from.getTypeID() == to.getTypeID() && // C1
      from.getShape() == to.getShape())     // C2
    return success();
  return emitOpError() << "expected a target of the same shape as " << from
                       << ", but got " << to;
}

LogicalResult FlatEncodingErrorOp::verify() {
  if (failed(verifyEncoding(*this))) // C3, C4
    return failure();
  return verifyElementwise(*this);
}

LogicalResult FlatScaleOp::verify() {
  if (failed(verifyDivisor(*this))) // C3
    return failure();
  return verifyElementwise(*this);
}

LogicalResult FlatRandomNormalOp::verify() {
  return verifyDraws(*this, getDraws(),
                     getNumElementsOf(getDestination().getType())); // C2
}

LogicalResult
FlatRandomNormalOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyGenerator(*this, getGeneratorAttr(), symbols); // C1
}

LogicalResult FlatAllReduceOp::verify() {
  if (failed(verifyWire(*this))) // C4, C5
    return failure();
  return verifyElementwise(*this);
}

LogicalResult FlatAllReduceStartOp::verify() {
  if (failed(verifyWire(*this)) || // C4, C7
      failed(verifyElementwise(*this)))
    return failure();
  if (getCondition() && getDestination() != getInput()) // C6
    return emitOpError()
           << "expected 'into' to be the operand, since there is a condition";
  return verifyIsAwaited(*this, FlatWaitOp::getOperationName(),
                         getCondition()); // C5
}

Operation *FlatAllReduceStartOp::getEnd() {
  Operation *wait = findWait(getTicket());
  return getCondition() ? wait->getParentOp() : wait;
}

OpOperand &FlatStartOpInterface::getDestinationOperand() {
  return *cast<DestinationStyleOpInterface>(getOperation())
              .getDpsInitOperand(0);
}

Operation *FlatStartOpInterface::getWait() { return findWait(getTicket()); }

void FlatStartOpInterface::replaceInput(Value input) {
  getInputMutable().assign(input);
  if (getCondition())
    getDestinationOperand().assign(input);
  for (Operation *user : getTicket().getUsers())
    if (auto wait = cast<FlatWaitOp>(user); wait.getSource())
      wait.getSourceMutable().assign(input);
}

LogicalResult FlatWaitOp::verify() {
  FlatStartOpInterface start = getStart();
  if (!start) // C1
    return emitOpError() << "expected the ticket of the operation that starts "
                         << "the collective, not one that was passed on";
  if (!isa<RankedTensorType>(getDestination().getType()))
    return success();
  auto report = [&](const Twine &message) -> LogicalResult {
    return (emitOpError() << message).attachNote(start.getLoc())
           << "the ticket's operation";
  };
  if (getDestination() != start.getInFlight()) // C2
    return report("expected the value that the ticket's operation has in "
                  "flight");
  bool mayBeWithout = bool(start.getCondition());
  if (getSource() ? getSource() != start.getInputMutable().get()
                  : !mayBeWithout) // C3
    return report(
        "expected 'reading' to name the operand of the ticket's operation");
  return success();
}

FlatStartOpInterface FlatWaitOp::getStart() {
  return getTicket().getDefiningOp<FlatStartOpInterface>();
}

LogicalResult FlatMatmulOp::verify() {
  if (failed(verifyTransposes(*this))) // C3
    return failure();
  FlatArrays arrays = {getLhs(), getDestination(), getRhs(), {}};
  if (getTransposeLhs())
    arrays = {getLhs(), getRhs(), getDestination(), {}};
  else if (getTransposeRhs())
    arrays = {getDestination(), getLhs(), getRhs(), {}};
  return verifyFlat(*this, getLayout(), arrays); // C1, C2
}

LogicalResult FlatOrthogonalizeOp::verify() {
  if (failed(verifyEpsilon(*this)) ||   // C3
      failed(verifyElementwise(*this))) // C1, C4
    return failure();
  return verifyFlat(*this, getLayout(), {{}, {}, getInput(), {}}); // C2
}

LogicalResult FlatProjectOp::verify() {
  MatrixListAttr layout = getLayout();
  bool hasRest = !layout.getPieces().empty() && !getPacked();
  if (failed(verifyCount(*this, getDestination().size(),
                         getPNumber() + (hasRest ? 2 : 1),
                         "'into' operands"))) // C3
    return failure();
  Value p = getDestination()[getPNumber()];
  Value rest = hasRest ? getDestination().back() : Value();
  if (failed(verifyFlat(*this, layout,
                        {getInput(), p, getFactor(), rest})) || // C1, C2
      failed(verifySameSize(
          *this, {getInput(), getError(),
                  getError() ? getDestination().front() : Value()}))) // C4
    return failure();
  if (getPacked() &&
      getNumElementsOf(p.getType()) !=
          layout.getNumFactorElements() + layout.getNumPieceElements()) // C2
    return emitOpError() << "expected space for P and the rest, but got "
                         << p.getType();
  return success();
}

LogicalResult FlatReconstructOp::verify() {
  if (failed(verifyDivided(*this)) || // C5
      failed(verifyCount(*this, getDestination().size(), getMatrix() ? 2 : 1,
                         "'into' operands")) || // C3
      failed(verifyFlat(*this, getLayout(),     // C1, C2
                        {getDestination().front(), getP(), getQ(), getRest()})))
    return failure();
  return verifySameSize(*this, {getDestination().front(), getMatrix(),
                                getDestination().back()}); // C4
}
