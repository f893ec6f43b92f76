// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Creates the calls for collectives, arithmetic and low-rank products.

#include "RuntimeCalls.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::ddp;

FailureOr<int32_t> CallLowering::getBucket(Operation *op, StringAttr name) {
  auto bucket = bucketNumbers.find(name);
  if (bucket != bucketNumbers.end())
    return bucket->second;
  return op->emitOpError()
         << "expected a bucket that 'ddp.bucket_info' describes, but got "
         << name;
}

FailureOr<int32_t> CallLowering::getCollective(CollectiveOpInterface op) {
  StringAttr bucket = op.getBucketNameAttr();
  if (bucket && failed(getBucket(op, bucket)))
    return failure();
  Type wire = op.getWireAttr() ? op.getWireAttr().getValue() : Type();
  FlatSymbolRefAttr error = getErrorState(op);
  ReductionAttr reduction = op.getReductionAttr();
  plan.collectives.push_back(PlanCollectiveAttr::get(
      op.getContext(), op.getKind(), bucket,
      groupNumbers.lookup(op.getGroupAttr().getValue()), getWholeSize(op),
      getElementTypeOf(op.getInput().getType()), wire,
      reduction && reduction.getValue() == Reduction::Mean, op.getRoot(),
      error ? error.getAttr() : StringAttr(), getAssignment(op)));
  return plan.collectives.size() - 1;
}

/// Returns the training step, which only stochastic rounding uses.
static RuntimeArgument<int64_t> getStepOrZero(Value step) {
  return step ? RuntimeArgument<int64_t>(step) : 0;
}

LogicalResult CallLowering::convertCollective(CollectiveOpInterface op,
                                              Value destination) {
  FailureOr<int32_t> number = getCollective(op);
  if (succeeded(number))
    call(op, rt::collective, *number, op.getInput(), destination,
         getStepOrZero(op.getStep()));
  return number;
}

FailureOr<LLVM::CallOp> CallLowering::startCollective(CollectiveOpInterface op,
                                                      Value destination) {
  FailureOr<int32_t> number = getCollective(op);
  if (failed(number))
    return failure();
  return call(op, rt::collective_start, *number, op.getInput(), destination,
              getStepOrZero(op.getStep()));
}

LogicalResult CallLowering::convert(FlatExchangeStartOp op) {
  FailureOr<LLVM::CallOp> started = startCollective(op, op.getDestination());
  if (failed(started))
    return failure();
  op.getTicket().replaceAllUsesWith(started->getResult());
  return success();
}

LogicalResult CallLowering::convert(FlatAllReduceStartOp op) {
  // The branch of an 'scf.if' that contains a wait tells whether it is a no-op.
  // Another pass may have replaced the 'scf.if' by blocks without running the
  // verifier.
  if (op.getCondition() && failed(op.verify())) {
    op.emitRemark()
        << "lower 'scf' to 'cf' only after 'convert-ddp-to-runtime'";
    return failure();
  }
  FailureOr<LLVM::CallOp> made = startCollective(op, op.getDestination());
  if (failed(made))
    return failure();
  LLVM::CallOp started = *made;
  if (!op.getCondition()) {
    op.getTicket().replaceAllUsesWith(started.getResult());
    return success();
  }
  OpBuilder builder(op);
  auto choice = scf::IfOp::create(builder, op.getLoc(), builder.getI64Type(),
                                  op.getCondition(), /*withElseRegion=*/true);
  started->moveBefore(choice.thenBlock(), choice.thenBlock()->end());
  builder.setInsertionPointToEnd(choice.thenBlock());
  scf::YieldOp::create(builder, op.getLoc(), started.getResult());
  builder.setInsertionPointToEnd(choice.elseBlock());
  scf::YieldOp::create(builder, op.getLoc(),
                       getInteger(builder, op.getLoc(), 0, 64));
  op.getTicket().replaceAllUsesWith(choice.getResult(0));
  return success();
}

LogicalResult CallLowering::convert(FlatWaitOp op) {
  // If nothing was started, the ticket comes from the first 'scf.if', and this
  // wait is in the else branch of a later one.
  auto choice = op.getTicket().getDefiningOp<scf::IfOp>();
  if (!choice || op->getParentRegion()->getRegionNumber() == 0)
    call(op, rt::wait, op.getTicket());
  return success();
}

LogicalResult CallLowering::convert(FlatCastOp op) {
  call(op, rt::cast, op.getInput(), getDtype(op.getInput()),
       op.getDestination(), getDtype(op.getDestination()),
       getNumElementsOf(op.getInput().getType()));
  return success();
}

LogicalResult CallLowering::convert(FlatEncodingErrorOp op) {
  auto encoding = cast<EncodedType>(op.getEncoding());
  Value step = op.getStep();
  call(op, rt::encoding_error, op.getInput(), op.getDestination(),
       getNumElementsOf(op.getInput().getType()), getDtype(op.getInput()),
       encoding.getEncoding(), encoding.getBlock(),
       step ? static_cast<int32_t>(groupNumbers.lookup(*op.getGroup())) : -1,
       encoding.getStream(), getStepOrZero(step));
  return success();
}

LogicalResult CallLowering::convert(FlatScaleOp op) {
  int64_t count = getNumElementsOf(op.getInput().getType());
  ddphook_dtype_t dtype = getDtype(op.getInput());
  if (op.getGroup())
    call(op, rt::divide_by_group_size, groupNumbers.lookup(*op.getGroup()),
         op.getInput(), op.getDestination(), count, dtype);
  else
    call(op, rt::scale, op.getFactorAttr().getValueAsDouble(), op.getInput(),
         op.getDestination(), count, dtype);
  return success();
}

LogicalResult CallLowering::convert(FlatAddOp op) {
  call(op, rt::add, op.getInput(), op.getRhs(), op.getDestination(),
       getNumElementsOf(op.getInput().getType()), getDtype(op.getInput()));
  return success();
}

LogicalResult CallLowering::convert(FlatSubOp op) {
  call(op, rt::subtract, op.getInput(), op.getRhs(), op.getDestination(),
       getNumElementsOf(op.getInput().getType()), getDtype(op.getInput()));
  return success();
}

LogicalResult CallLowering::convert(FlatSparsifyOp op) {
  call(op, rt::sparsify, op.getKeep(), op.getInput(),
       getNumElementsOf(op.getInput().getType()), op.getDestination().front(),
       op.getDestination().back());
  return measure(op, rt::measure_entries, op.getKeep(),
                 op.getDestination().front(), op.getDestination().back(),
                 getNumElementsOf(op.getInput().getType()));
}

LogicalResult CallLowering::convert(FlatDensifyOp op) {
  int64_t keep = op.getKeep();
  int64_t parts = getNumElementsOf(op.getEntries().getType()) / (2 * keep);
  call(op, rt::densify, op.getEntries(), parts, keep, op.getDestination(),
       getNumElementsOf(op.getDestination().getType()));
  return success();
}

int32_t CallLowering::getMatrixList(MatrixListAttr layout, Type elementType,
                                    AssignmentAttr assignment) {
  // Unfused products use their own arrays, in which a rank's matrices need not
  // be adjacent. Then each rank computes all of them.
  for (size_t i = 1; assignment && i < assignment.getMembers().size(); ++i)
    if (assignment.getMembers()[i] != assignment.getMembers()[i - 1] + 1)
      assignment = {};
  auto list = PlanMatrixListAttr::get(layout.getContext(), elementType, layout,
                                      assignment);
  auto [it, isNew] = listNumbers.try_emplace(list, plan.matrixLists.size());
  if (isNew)
    plan.matrixLists.push_back(list);
  return it->second;
}

LogicalResult CallLowering::convert(FlatMatmulOp op) {
  int32_t list =
      getMatrixList(op.getLayout(), getElementTypeOf(op.getLhs().getType()),
                    getAssignment(op));
  Value lhs = op.getLhs(), rhs = op.getRhs(), out = op.getDestination();
  if (op.getTransposeLhs())
    call(op, rt::matmul, list, DDPHOOK_MATMUL_Q, lhs, rhs, out);
  else if (op.getTransposeRhs())
    call(op, rt::matmul, list, DDPHOOK_MATMUL_M, out, lhs, rhs);
  else
    call(op, rt::matmul, list, DDPHOOK_MATMUL_P, lhs, out, rhs);
  return measure(op, rt::measure_product, list, lhs, rhs, out);
}

LogicalResult CallLowering::convert(FlatOrthogonalizeOp op) {
  int32_t list =
      getMatrixList(op.getLayout(), getElementTypeOf(op.getInput().getType()));
  // MatrixListAttr describes these factors as Q.
  int32_t factor =
      DDPHOOK_FACTOR_Q | (op.getUnitColumns() ? DDPHOOK_UNIT_COLUMNS : 0) |
      (op.getIndependentColumns() ? DDPHOOK_INDEPENDENT_COLUMNS : 0);
  call(op, rt::orthogonalize, list, factor, op.getInput(), op.getDestination(),
       op.getEpsilonAttr().getValueAsDouble());
  return success();
}

LogicalResult CallLowering::convert(FlatProjectOp op) {
  OpBuilder builder(op);
  Location loc = op.getLoc();
  SmallVector<Value> into = llvm::to_vector(op.getDestination());
  Value m = op.getError() ? into.front() : Value();
  Value p = into[op.getPNumber()];
  bool hasRest = !op.getLayout().getPieces().empty() && !op.getPacked();
  Value rest = hasRest ? into.back() : Value();
  if (op.getPacked()) {
    int64_t restSize = op.getLayout().getNumPieceElements();
    Type elementType = getElementTypeOf(p.getType());
    Value offset =
        getInteger(builder, loc, getNumElementsOf(p.getType()) - restSize, 64);
    p = getPointer(builder, loc, p);
    rest =
        LLVM::GEPOp::create(builder, loc, p.getType(), elementType, p, offset);
  }
  call(op, rt::project,
       getMatrixList(op.getLayout(), getElementTypeOf(op.getInput().getType()),
                     getAssignment(op)),
       op.getInput(), op.getError(), op.getFactor(), m, p, rest);
  return success();
}

LogicalResult CallLowering::convert(FlatReconstructOp op) {
  Value error = op.getMatrix() ? op.getDestination().back() : Value();
  int32_t group =
      op.getGroup() ? int32_t(groupNumbers.lookup(*op.getGroup())) : -1;
  int32_t list = getMatrixList(
      op.getLayout(), getElementTypeOf(op.getP().getType()), getAssignment(op));
  call(op, rt::reconstruct, list, op.getP(), op.getQ(), op.getRest(),
       op.getMatrix(), op.getDestination().front(), error, group);
  if (getAssignment(op))
    call(op, rt::reconstruct_others, list, op.getP(), op.getQ(), op.getRest(),
         op.getDestination().front());
  return success();
}
