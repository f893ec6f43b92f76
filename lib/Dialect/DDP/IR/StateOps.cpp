// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Verifiers and effects of the operations on state.

#include "Verifiers.h"

using namespace mlir;
using namespace mlir::ddp;

static bool isGeneratorType(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && tensor.getElementType().isInteger(32) &&
         tensor.getShape() == ArrayRef<int64_t>{StateOp::kGeneratorWords};
}

LogicalResult StateOp::verify() {
  auto bucket = dyn_cast<BucketType>(getType());
  if (!bucket && !getType().isInteger(64) && !isGeneratorType(getType())) // C1
    return emitOpError() << "expected a bucket, i64 or tensor<"
                         << StateOp::kGeneratorWords << "xi32>, but got "
                         << getType();
  bool isGenerator = getInit() == StateInit::MT19937;
  if (isGenerator != getSeed().has_value()) // C2
    return emitOpError() << (isGenerator ? "expected a 'seed' with 'mt19937'"
                                         : "expected 'seed' only with "
                                           "'mt19937'");
  if (isGenerator && !isGeneratorType(getType())) // C2
    return emitOpError() << "expected a state with 'mt19937' to be a tensor<"
                         << StateOp::kGeneratorWords << "xi32>, but got "
                         << getType();
  if (isGenerator && *getSeed() > UINT32_MAX) // C2
    return emitOpError() << "expected a seed from 0 to " << UINT32_MAX
                         << ", but got " << static_cast<int64_t>(*getSeed());
  std::optional<StateKind> kind = getKind();
  bool isCount = kind == StateKind::Iteration || kind == StateKind::Counter;
  if (kind && !(isCount                         ? getType().isInteger(64)
                : *kind == StateKind::Generator ? isGenerator
                                                : bool(bucket))) // C6
    return emitOpError()
           << "expected errors and factors to be buckets, iterations and "
              "counters i64, and generators to start as 'mt19937', but got a "
              "state of kind '"
           << stringifyStateKind(*kind) << "'";
  if (getRole().has_value() != getGradients().has_value()) // C5
    return emitOpError() << "expected 'role' and 'of' together";
  size_t numTensors = bucket ? bucket.getNumMembers() : 1;
  if (getGradients() && getGradients()->size() != 1 &&
      getGradients()->size() != numTensors) // C5
    return emitOpError() << "expected one list of gradients or " << numTensors
                         << ", but got " << getGradients()->size();
  bool isNormal = getInit() == StateInit::Normal;
  if (isNormal != getGenerator().has_value() ||
      isNormal != getDraws().has_value()) // C3
    return emitOpError() << (isNormal ? "expected 'from' and 'draws' with "
                                        "'normal'"
                                      : "expected 'from' and 'draws' only with "
                                        "'normal'");
  if (!isNormal)
    return success();
  if (!bucket) // C3
    return emitOpError()
           << "expected a state with 'normal' to be a bucket, but got "
           << getType();
  return verifyDraws(getOperation(), *getDraws(), bucket.getNumElements());
}

LogicalResult mlir::ddp::verifyDraws(Operation *op, ArrayRef<int64_t> draws,
                                     int64_t numElements) {
  int64_t missing = numElements;
  for (int64_t draw : draws) {
    if (draw < 0)
      return op->emitOpError() << "expected draws of at least 0 elements";
    if (draw > missing)
      return op->emitOpError() << "expected draws of " << numElements
                               << " elements in total, but got more";
    missing -= draw;
  }
  if (missing != 0)
    return op->emitOpError()
           << "expected draws of " << numElements
           << " elements in total, but got " << numElements - missing;
  return success();
}

/// Looks up a state, and reports an error if there is none.
static StateOp lookupState(Operation *op, FlatSymbolRefAttr symbol,
                           SymbolTableCollection &symbols) {
  auto state = symbols.lookupNearestSymbolFrom<StateOp>(op, symbol);
  if (!state)
    op->emitOpError() << "expected " << symbol << " to be a 'ddp.state'";
  return state;
}

LogicalResult mlir::ddp::verifyGenerator(Operation *op,
                                         FlatSymbolRefAttr symbol,
                                         SymbolTableCollection &symbols) {
  StateOp state = lookupState(op, symbol, symbols);
  if (!state)
    return failure();
  if (state.getInit() != StateInit::MT19937)
    return op->emitOpError()
           << "expected " << symbol
           << " to be a random generator, a state with 'mt19937'";
  return success();
}

LogicalResult StateOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (!getGeneratorAttr())
    return success();
  return verifyGenerator(*this, getGeneratorAttr(), symbols); // C4
}

/// True if `type` is the state's type, or that type flattened.
static bool isValueOf(StateOp state, Type type) {
  if (auto bucket = dyn_cast<BucketType>(state.getType()))
    return type == bucket || type == bucket.getFlatType();
  return type == state.getType();
}

template <typename OpTy>
static LogicalResult verifyAccess(OpTy op, SymbolTableCollection &symbols) {
  StateOp state = lookupState(op, op.getStateAttr(), symbols); // C1
  if (!state)
    return failure();
  Type type = op.getValue().getType();
  if (!isValueOf(state, type)) // C2
    return op.emitOpError()
           << "expected a value of " << op.getStateAttr() << "'s type "
           << state.getType() << ", but got " << type;
  return success();
}

LogicalResult LoadOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyAccess(*this, symbols);
}

LogicalResult StoreOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (failed(verifyAccess(*this, symbols)))
    return failure();
  auto state =
      symbols.lookupNearestSymbolFrom<StateOp>(getOperation(), getStateAttr());
  if (state.getInit() == StateInit::MT19937) // C1
    return emitOpError()
           << "expected a state that is not a random generator, but "
           << "got " << getStateAttr();
  return success();
}

LogicalResult StateBufferOp::verifySymbolUses(SymbolTableCollection &symbols) {
  StateOp state = lookupState(*this, getStateAttr(), symbols); // C1
  if (!state)
    return failure();
  MemRefType expected = state.getBufferType();
  if (getType() != expected) // C2
    return emitOpError() << "expected " << expected << ", but got "
                         << getType();
  return success();
}

MemRefType mlir::ddp::getStateMemory(Type type) {
  if (auto bucket = dyn_cast<BucketType>(type))
    type = bucket.getFlatType();
  if (auto tensor = dyn_cast<RankedTensorType>(type))
    return MemRefType::get(tensor.getShape(), tensor.getElementType());
  return MemRefType::get({}, type);
}

MemRefType StateOp::getBufferType() { return getStateMemory(getType()); }

LogicalResult RandomNormalOp::verify() {
  return verifyDraws(*this, getDraws(), getNumElementsOf(getType())); // C2
}

LogicalResult RandomNormalOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyGenerator(*this, getGeneratorAttr(), symbols); // C1
}

LogicalResult CountCompressionOp::verify() {
  auto isNegative = [](uint64_t value) {
    return static_cast<int64_t>(value) < 0;
  };
  if (isNegative(getBefore()) || isNegative(getAfter()) ||
      isNegative(getFrequency()) || getFrequency() == 0) // C1
    return emitOpError() << "expected element counts of at least 0 and a "
                            "frequency of at least 1";
  return success();
}
