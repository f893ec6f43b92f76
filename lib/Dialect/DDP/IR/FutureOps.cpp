// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Verifiers and canonicalization of collectives in flight.

#include "Verifiers.h"

#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace mlir::ddp;

LogicalResult AllReduceStartOp::verify() {
  if (failed(verifyWire(*this))) // C3, C5
    return failure();
  auto expected = FutureType::get(getContext(), getInput().getType());
  if (getType() != expected) // C1
    return emitOpError() << "expected the result to be " << expected;
  return verifyIsAwaited(*this, WaitOp::getOperationName(),
                         getCondition()); // C4
}

WaitOp AllReduceStartOp::getWait() {
  return cast<WaitOp>(findWait(getFuture()));
}

Operation *AllReduceStartOp::getEnd() {
  return getCondition() ? getWait()->getParentOp() : getWait();
}

/// Creates the blocking operation that corresponds to `start`. Attributes have
/// the same names on every collective.
static Operation *createWhole(OpBuilder &builder, CollectiveOpInterface start,
                              Type type) {
  StringRef kind = stringifyCollectiveKind(start.getKind());
  OperationState state(start.getLoc(),
                       (DDPDialect::getDialectNamespace() + "." + kind).str());
  state.addOperands(start.getInput());
  if (Value step = start.getStep())
    state.addOperands(step);
  auto add = [&](StringRef name, Attribute attribute) {
    if (attribute)
      state.addAttribute(name, attribute);
  };
  add("reduction", start.getReductionAttr());
  add("group", start.getGroupAttr());
  add("wire", start.getWireAttr());
  add("bucket_name", start.getBucketNameAttr());
  if (start.getKind() == CollectiveKind::Broadcast)
    add("root", builder.getI64IntegerAttr(start.getRoot()));
  state.addTypes(type);
  Operation *whole = builder.create(state);
  setErrorState(whole, getErrorState(start));
  return whole;
}

bool mlir::ddp::isWholeOnValues(Operation *op) {
  auto collective = dyn_cast<CollectiveOpInterface>(op);
  return collective && !isa<FlatOpInterface>(op) && op->getNumResults() == 1 &&
         collective.getEnd() == op;
}

Operation *mlir::ddp::createStart(OpBuilder &builder,
                                  CollectiveOpInterface whole,
                                  Value condition) {
  auto future =
      FutureType::get(builder.getContext(), whole->getResult(0).getType());
  CollectiveKind kind = whole.getKind();
  if (kind != CollectiveKind::AllReduce)
    return ExchangeStartOp::create(
        builder, whole.getLoc(), future,
        CollectiveKindAttr::get(builder.getContext(), kind),
        whole.getReductionAttr(), whole.getInput(),
        kind == CollectiveKind::Broadcast
            ? builder.getI64IntegerAttr(whole.getRoot())
            : IntegerAttr(),
        whole.getGroupAttr(), whole.getWireAttr(), whole.getStep(),
        whole.getBucketNameAttr());
  auto start = AllReduceStartOp::create(
      builder, whole.getLoc(), future, whole.getReductionAttr(),
      whole.getInput(), whole.getGroupAttr(), whole.getWireAttr(),
      whole.getStep(), whole.getBucketNameAttr(), condition);
  setErrorState(start, getErrorState(whole));
  return start;
}

/// Folds a start that is awaited immediately into the blocking collective.
static LogicalResult foldWait(CollectiveOpInterface start,
                              PatternRewriter &rewriter) {
  auto wait = dyn_cast_or_null<WaitOp>(start->getNextNode());
  if (!wait || wait.getStart() != start)
    return failure();
  rewriter.replaceOp(wait, createWhole(rewriter, start, wait.getType()));
  rewriter.eraseOp(start);
  return success();
}

LogicalResult AllReduceStartOp::canonicalize(AllReduceStartOp start,
                                             PatternRewriter &rewriter) {
  return foldWait(start, rewriter);
}

// ExchangeOps.cpp has its verifier, next to those of the blocking operations.

Operation *ExchangeStartOp::getEnd() { return findWait(getFuture()); }

LogicalResult ExchangeStartOp::canonicalize(ExchangeStartOp start,
                                            PatternRewriter &rewriter) {
  return foldWait(start, rewriter);
}

LogicalResult WaitOp::inferReturnTypes(MLIRContext *,
                                       std::optional<Location> location,
                                       ValueRange operands, DictionaryAttr,
                                       OpaqueProperties, RegionRange,
                                       SmallVectorImpl<Type> &types) {
  auto future = dyn_cast<FutureType>(operands.front().getType());
  if (!future)
    return emitOptionalError(location, "expected a future to wait for");
  types.push_back(future.getValueType());
  return success();
}

LogicalResult WaitOp::verify() {
  if (getStart()) // C1
    return success();
  return emitOpError()
         << "expected the future of the operation that starts the "
         << "collective, not one that was passed on";
}

Operation *mlir::ddp::getAwaited(Operation *op) {
  if (auto wait = dyn_cast<WaitOp>(op))
    return wait.getStart();
  if (auto wait = dyn_cast<FlatWaitOp>(op))
    return wait.getStart();
  return nullptr;
}

bool mlir::ddp::isIdleWait(Operation *op) {
  Operation *start = getAwaited(op);
  return start && op->getBlock() != start->getBlock() &&
         op->getParentRegion()->getRegionNumber() != 0;
}

CollectiveOpInterface WaitOp::getStart() {
  return getFuture().getDefiningOp<CollectiveOpInterface>();
}
