//===- FutureOps.cpp -------------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Verifiers, effects and canonicalization of collectives in flight. The
// constraint that a check enforces stands beside it by its number in the
// operation's description.
//
//===----------------------------------------------------------------------===//

#include "AlgebraVerifiers.h"
#include "ddphook/Dialect/DDP/IR/DDP.h"

#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace mlir::ddp;

//===----------------------------------------------------------------------===//
// ddp.all_reduce_start
//===----------------------------------------------------------------------===//

/// Checks what the results are; what they are used for comes after that.
static LogicalResult verifyResults(AllReduceStartOp op) {
  Type input = op.getInput().getType();
  TypeRange results = op->getResultTypes();
  auto isTicket = [](Type type) { return type.isInteger(64); };
  if (isa<MemRefType>(input)) {
    if (op.getDestination() && results.size() == 1 && isTicket(results[0]))
      return success();
    return op.emitOpError() << "expected an 'into' operand and a ticket as "
                            << "the result on memrefs";
  }
  bool isFuture = results.size() == 1 && isa<FutureType>(results[0]) &&
                  cast<FutureType>(results[0]).getValueType() == input;
  if (isFuture && !op.getDestination())
    return success();
  if (isa<RankedTensorType>(input) && results.size() == 2 &&
      results[0] == input && isTicket(results[1]))
    return success();
  InFlightDiagnostic diagnostic = op.emitOpError()
                                  << "expected the result to be "
                                  << FutureType::get(op.getContext(), input);
  if (isa<RankedTensorType>(input))
    diagnostic << ", or the results to be " << input << " and a ticket";
  if (isFuture)
    diagnostic << " without 'into'";
  return diagnostic;
}

LogicalResult AllReduceStartOp::verify() {
  if (getWire() && !isa<Float16Type, BFloat16Type>(*getWire())) // C3
    return emitOpError() << "expected wire type f16 or bf16, but got "
                         << *getWire();
  if (failed(verifyResults(*this))) // C1
    return failure();
  if (failed(verifyDestinationType(*this))) // C4
    return failure();
  Operation *wait = nullptr;
  for (Value result : getValues()) { // C5
    if (!result.hasOneUse())
      return emitOpError() << "expected to be awaited exactly once, but its "
                           << "result has " << result.getNumUses() << " uses";
    Operation *user = *result.user_begin();
    if (isa<WaitOp>(user) && user->getBlock() == (*this)->getBlock() &&
        (!wait || wait == user)) {
      wait = user;
      continue;
    }
    InFlightDiagnostic diagnostic =
        emitOpError() << "expected to be awaited by one 'ddp.wait' in the same "
                      << "block, but its result is used by '" << user->getName()
                      << "'" << (isa<WaitOp>(user) ? " elsewhere" : "");
    diagnostic.attachNote(user->getLoc()) << "this is the use";
    return diagnostic;
  }
  return success();
}

LogicalResult
AllReduceStartOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyGroup(*this, getGroupAttr(), symbols); // C2
}

WaitOp AllReduceStartOp::getWait() {
  return cast<WaitOp>(*getValues().back().user_begin());
}

namespace {
/// A start that is awaited at once is an all-reduce.
struct FoldWait : public OpRewritePattern<AllReduceStartOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(AllReduceStartOp start,
                                PatternRewriter &rewriter) const override {
    auto wait = dyn_cast_or_null<WaitOp>(start->getNextNode());
    if (!wait || !isa<FutureType>(wait.getInFlight().getType()) ||
        wait.getStart() != start)
      return failure();
    rewriter.replaceOpWithNewOp<AllReduceOp>(
        wait, start.getInput().getType(), start.getReductionAttr(),
        start.getInput(), start.getGroupAttr(), start.getWireAttr(),
        start.getBucketNameAttr(), /*destination=*/Value());
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

LogicalResult WaitOp::inferReturnTypes(MLIRContext *, std::optional<Location>,
                                       ValueRange operands, DictionaryAttr,
                                       OpaqueProperties, RegionRange,
                                       SmallVectorImpl<Type> &types) {
  Type inFlight = operands.front().getType();
  if (auto future = dyn_cast<FutureType>(inFlight))
    types.push_back(future.getValueType());
  else if (!isa<MemRefType>(inFlight))
    types.push_back(inFlight);
  return success();
}

LogicalResult WaitOp::verify() {
  bool isFuture = isa<FutureType>(getInFlight().getType());
  if (isFuture == (getTicket() != nullptr)) // C1
    return emitOpError() << (isFuture ? "expected no ticket beside a future"
                                      : "expected a ticket");
  if (isFuture && getSource()) // C1
    return emitOpError() << "expected no 'reading' beside a future";
  AllReduceStartOp start = getStart();
  if (!start) // C2
    return emitOpError() << "expected a " << (isFuture ? "future" : "ticket")
                         << " of 'ddp.all_reduce_start' itself, not one that "
                         << "was passed on";
  if (!isa<RankedTensorType>(getInFlight().getType()))
    return success();
  if (getInFlight() != start.getValues().front()) { // C3
    InFlightDiagnostic diagnostic =
        emitOpError() << "expected the value that the ticket's operation has "
                      << "in flight";
    diagnostic.attachNote(start.getLoc()) << "the ticket's operation";
    return diagnostic;
  }
  if (getSource() && getSource() != start.getInput()) { // C3
    InFlightDiagnostic diagnostic =
        emitOpError() << "expected 'reading' to name the operand of the "
                      << "operation that it ends";
    diagnostic.attachNote(start.getLoc()) << "the ticket's operation";
    return diagnostic;
  }
  return success();
}

AllReduceStartOp WaitOp::getStart() {
  Value handle = getTicket() ? getTicket() : getInFlight();
  return handle.getDefiningOp<AllReduceStartOp>();
}

void WaitOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>
        &effects) {
  effects.emplace_back(MemoryEffects::Write::get(), CollectiveResource::get());
  if (!isa<MemRefType>(getInFlight().getType()))
    return;
  effects.emplace_back(MemoryEffects::Write::get(), &getInFlightMutable(),
                       SideEffects::DefaultResource::get());
  for (OpOperand &source : getSourceMutable())
    effects.emplace_back(MemoryEffects::Read::get(), &source,
                         SideEffects::DefaultResource::get());
}
