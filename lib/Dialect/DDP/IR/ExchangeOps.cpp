// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Verifiers of broadcasts and of collectives on parts, on values and on flat
// arrays, blocking and in flight.

#include "Verifiers.h"

using namespace mlir;
using namespace mlir::ddp;

/// Returns the type of a collective's output: its result, the value of its
/// future, or on flat arrays its destination.
static Type getOutputType(CollectiveOpInterface op) {
  if (auto flat = dyn_cast<DestinationStyleOpInterface>(op.getOperation()))
    return flat.getDpsInits().front().getType();
  if (op->getNumResults() == 0)
    return op.getInput().getType();
  Type type = op->getResult(0).getType();
  auto future = dyn_cast<FutureType>(type);
  return future ? future.getValueType() : type;
}

int64_t mlir::ddp::getWholeSize(CollectiveOpInterface op) {
  return getNumElementsOf(op.getKind() == CollectiveKind::AllGather
                              ? getOutputType(op)
                              : op.getInput().getType());
}

std::optional<int64_t> mlir::ddp::getStatedSize(ProcessGroupOp group) {
  if (group.getSize())
    return *group.getSize();
  if (!group.getRanks() || group.getRanks()->empty())
    return std::nullopt;
  return cast<DenseI64ArrayAttr>((*group.getRanks())[0]).size();
}

LogicalResult
mlir::ddp::verifyCollectiveSymbols(CollectiveOpInterface op,
                                   SymbolTableCollection &symbols) {
  if (op.getKind() == CollectiveKind::AllReduce)
    return verifyReductionSymbols(op, symbols);
  FlatSymbolRefAttr name = op.getGroupAttr();
  if (failed(verifyGroup(op, name, symbols)))
    return failure();
  auto group = cast<ProcessGroupOp>(symbols.lookupNearestSymbolFrom(op, name));
  std::optional<int64_t> ranks = getStatedSize(group);
  if (!ranks) {
    if (op.getKind() == CollectiveKind::Broadcast)
      return success();
    return (op->emitOpError()
            << "expected process group " << name
            << " to declare its size, on which the parts depend")
               .attachNote(group.getLoc())
           << "the group is declared here";
  }
  int64_t numInput = getNumElementsOf(op.getInput().getType());
  int64_t numOutput = getNumElementsOf(getOutputType(op));
  switch (op.getKind()) {
  case CollectiveKind::AllReduce:
    break;
  case CollectiveKind::ReduceScatter:
  case CollectiveKind::AllGather: {
    bool isGather = op.getKind() == CollectiveKind::AllGather;
    int64_t whole = isGather ? numOutput : numInput;
    int64_t part = isGather ? numInput : numOutput;
    if (part == getPartSize(whole, *ranks))
      return success();
    return op->emitOpError()
           << "expected a part of " << getPartSize(whole, *ranks)
           << " elements, since " << *ranks << " ranks share " << whole
           << ", but got " << part;
  }
  case CollectiveKind::AllToAll:
    if (numInput % *ranks == 0)
      return success();
    return op->emitOpError()
           << "expected an equal number of elements for each of " << *ranks
           << " ranks, but got " << numInput;
  case CollectiveKind::Broadcast:
    if (op.getRoot() < *ranks)
      return success();
    return op->emitOpError() << "expected the root to be one of " << *ranks
                             << " ranks, but got " << op.getRoot();
  }
  return success();
}

/// True if elements can be sent as `wire`. An all-gather has no step for
/// stochastic rounding.
static bool isWire(CollectiveOpInterface op, Type wire) {
  if (auto encoding = dyn_cast<EncodedType>(wire))
    return !encoding.isAffine() &&
           (op.getKind() == CollectiveKind::ReduceScatter ||
            !encoding.isStochastic());
  return isa<Float16Type, BFloat16Type>(wire);
}

/// Checks that operand and result have one element type, and the wire type.
static LogicalResult verifyTypes(CollectiveOpInterface op) {
  TypeAttr wire = op.getWireAttr();
  if (wire && !isWire(op, wire.getValue()))
    return op->emitOpError()
           << "expected wire type f16 or bf16 or an encoding without "
           << (op.getKind() == CollectiveKind::ReduceScatter
                   ? "a zero point"
                   : "zero points and random numbers")
           << ", but got " << wire.getValue();
  Type from = getElementTypeOf(op.getInput().getType());
  Type to = getElementTypeOf(getOutputType(op));
  if (from == to)
    return success();
  return op->emitOpError() << "expected elements of one type, but got " << from
                           << " and " << to;
}

static LogicalResult verifyRoot(CollectiveOpInterface op) {
  if (op.getRoot() >= 0)
    return success();
  return op->emitOpError() << "expected a root of at least 0, but got "
                           << op.getRoot();
}

/// True if the result has the operand's type.
static bool givesWhole(CollectiveOpInterface op) {
  return op.getKind() == CollectiveKind::AllToAll ||
         op.getKind() == CollectiveKind::Broadcast;
}

/// Verifies C1 of a start, and that it has the same clauses as the operation
/// that it starts. A reduction and a root are required.
template <typename StartT>
static LogicalResult verifyClauses(StartT start) {
  if (start.getKind() == CollectiveKind::AllReduce)
    return start.emitOpError()
           << "expected a collective other than an all-reduce, which "
              "'ddp.all_reduce_start' starts";
  std::string name = (DDPDialect::getDialectNamespace() + "." +
                      stringifyCollectiveKind(start.getKind()))
                         .str();
  ArrayRef<StringAttr> known =
      RegisteredOperationName::lookup(name, start.getContext())
          ->getAttributeNames();
  struct Clause {
    StringRef attribute, words;
    Attribute value;
    bool isNeeded;
  } clauses[] = {
      {"reduction", "'mean' or 'sum'", start.getReductionAttr(), true},
      {"root", "'from'", start.getFromAttr(), true},
      {"wire", "'wire'", start.getWireAttr(), false},
      {"bucket_name", "'as'", start.getBucketNameAttr(), false}};
  for (const Clause &clause : clauses) {
    bool isKnown = llvm::is_contained(known, clause.attribute);
    if (clause.value ? isKnown : !isKnown || !clause.isNeeded)
      continue;
    return start.emitOpError() << "expected " << (clause.value ? "no " : "")
                               << clause.words << ", since '" << name << "' has"
                               << (clause.value ? " none" : " one");
  }
  return success();
}

/// Verifies C1 of operations on flat arrays, and that sizes are equal for kinds
/// without parts.
static LogicalResult verifyFlatExchange(CollectiveOpInterface op) {
  Type input = op.getInput().getType(), output = getOutputType(op);
  if (failed(verifyOneKind(op, {input, output})) || failed(verifyTypes(op)))
    return failure();
  if (!givesWhole(op) || getNumElementsOf(input) == getNumElementsOf(output))
    return success();
  return op->emitOpError() << "expected arrays of one size, but got " << input
                           << " and " << output;
}

LogicalResult ReduceScatterOp::verify() {
  if (failed(verifyTypes(*this))) // C1, C4
    return failure();
  return verifyStep(*this); // C5
}

LogicalResult AllGatherOp::verify() { return verifyTypes(*this); } // C1, C4

LogicalResult BroadcastOp::verify() { return verifyRoot(*this); } // C2

/// Checks the types that ODS checks for the operation that is started: the type
/// of a part, or of a result with the operand's type.
static LogicalResult verifyFuture(ExchangeStartOp op) {
  Type output = getOutputType(op);
  if (givesWhole(op) && output != op.getInput().getType())
    return op.emitOpError()
           << "expected the result to be "
           << FutureType::get(op.getContext(), op.getInput().getType());
  if (givesWhole(op))
    return success();
  Type part = op.getKind() == CollectiveKind::AllGather
                  ? op.getInput().getType()
                  : output;
  auto tensor = dyn_cast<RankedTensorType>(part);
  if (tensor && tensor.getRank() == 1)
    return success();
  return op.emitOpError() << "expected a part that is a tensor of one "
                          << "dimension, but got " << part;
}

LogicalResult ExchangeStartOp::verify() {
  if (failed(verifyClauses(*this)) || // C1, C2
      failed(verifyRoot(*this)) || failed(verifyTypes(*this)) ||
      failed(verifyFuture(*this)) || // C3
      failed(verifyStep(*this)))     // C5
    return failure();
  return verifyIsAwaited(*this, WaitOp::getOperationName(),
                         /*condition=*/Value()); // C4
}

LogicalResult FlatReduceScatterOp::verify() {
  if (failed(verifyFlatExchange(*this))) // C1, C4
    return failure();
  return verifyStep(*this); // C5
}

LogicalResult FlatAllGatherOp::verify() {
  return verifyFlatExchange(*this); // C1, C4
}

LogicalResult FlatAllToAllOp::verify() {
  return verifyFlatExchange(*this); // C1, C3
}

LogicalResult FlatBroadcastOp::verify() {
  if (failed(verifyRoot(*this))) // C4
    return failure();
  return verifyFlatExchange(*this); // C1, C3
}

Operation *FlatExchangeStartOp::getEnd() { return findWait(getTicket()); }

LogicalResult FlatExchangeStartOp::verify() {
  if (failed(verifyClauses(*this)) || failed(verifyRoot(*this)) ||
      failed(verifyFlatExchange(*this)) || // C1
      failed(verifyStep(*this)))           // C2
    return failure();
  return verifyIsAwaited(*this, FlatWaitOp::getOperationName(),
                         /*condition=*/Value()); // C3
}
