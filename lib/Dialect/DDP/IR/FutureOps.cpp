//===- FutureOps.cpp -------------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Verifiers and canonicalization of collectives in flight. The
// constraint that a check enforces stands beside it by its number in the
// operation's description.
//
//===----------------------------------------------------------------------===//

#include "Verifiers.h"

#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace mlir::ddp;

//===----------------------------------------------------------------------===//
// ddp.all_reduce_start
//===----------------------------------------------------------------------===//

LogicalResult AllReduceStartOp::verify() {
  if (failed(verifyWire(*this))) // C3, C5
    return failure();
  auto expected = FutureType::get(getContext(), getInput().getType());
  if (getType() != expected) // C1
    return emitOpError() << "expected the result to be " << expected;
  return verifyIsAwaited(*this, WaitOp::getOperationName(),
                         getCondition()); // C4
}

LogicalResult
AllReduceStartOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyReductionSymbols(*this, symbols); // C2
}

WaitOp AllReduceStartOp::getWait() {
  return cast<WaitOp>(findWait(getFuture()));
}

Operation *AllReduceStartOp::getEnd() {
  return getCondition() ? getWait()->getParentOp() : getWait();
}

namespace {
/// A start that is awaited at once is an all-reduce.
struct FoldWait : public OpRewritePattern<AllReduceStartOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(AllReduceStartOp start,
                                PatternRewriter &rewriter) const override {
    auto wait = dyn_cast_or_null<WaitOp>(start->getNextNode());
    if (!wait || wait.getStart() != start)
      return failure();
    FlatSymbolRefAttr error = getErrorState(start);
    auto whole = rewriter.replaceOpWithNewOp<AllReduceOp>(
        wait, start.getReductionAttr(), start.getInput(), start.getGroupAttr(),
        start.getWireAttr(), start.getBucketNameAttr(), start.getStep());
    setErrorState(whole, error);
    rewriter.eraseOp(start);
    return success();
  }
};
} // namespace

void AllReduceStartOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                                   MLIRContext *context) {
  patterns.add<FoldWait>(context);
}

//===----------------------------------------------------------------------===//
// ddp.wait
//===----------------------------------------------------------------------===//

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
  return emitOpError() << "expected a future of '"
                       << AllReduceStartOp::getOperationName()
                       << "' itself, not one that was passed on";
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

AllReduceStartOp WaitOp::getStart() {
  return getFuture().getDefiningOp<AllReduceStartOp>();
}
