//===- RuntimeCallsAlgebra.cpp -------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The calls of collectives, arithmetic and low-rank products.
//
//===----------------------------------------------------------------------===//

#include "RuntimeCalls.h"

using namespace mlir;
using namespace mlir::ddp;

//===----------------------------------------------------------------------===//
// The algebra
//===----------------------------------------------------------------------===//

template <typename OpTy>
FailureOr<SmallVector<Value>> CallLowering::getCollective(OpBuilder &builder,
                                                          OpTy op) {
  StringAttr bucket = op.getBucketNameAttr();
  if (bucket && !bucketNumbers.contains(bucket))
    return op.emitOpError() << "expected a bucket that 'ddp.bucket_info' "
                               "describes, but got "
                            << bucket;
  FailureOr<SmallVector<Value>> pointers =
      getPointers(builder, op, {op.getInput(), op.getDestination()});
  if (failed(pointers))
    return failure();
  auto type = cast<MemRefType>(op.getInput().getType());
  Value number = getInteger(builder, op.getLoc(), plan.collectives.size(), 32);
  plan.collectives.push_back(PlanCollectiveAttr::get(
      op.getContext(), bucket, groupNumbers.lookup(op.getGroup()),
      type.getNumElements(), type.getElementType(),
      op.getWire().value_or(Type()), op.getReduction() == Reduction::Mean));
  pointers->insert(pointers->begin(), number);
  return pointers;
}

LogicalResult CallLowering::convert(AllReduceOp op) {
  OpBuilder builder(op);
  FailureOr<SmallVector<Value>> arguments = getCollective(builder, op);
  if (failed(arguments))
    return failure();
  createCall(builder, op.getLoc(), "ddphook_rt_all_reduce", Type(), *arguments);
  op.erase();
  return success();
}

LogicalResult CallLowering::convert(AllReduceStartOp op) {
  OpBuilder builder(op);
  FailureOr<SmallVector<Value>> arguments = getCollective(builder, op);
  if (failed(arguments))
    return failure();
  auto call = createCall(builder, op.getLoc(), "ddphook_rt_all_reduce_start",
                         builder.getI64Type(), *arguments);
  op->getResult(0).replaceAllUsesWith(call.getResult());
  op.erase();
  return success();
}

LogicalResult CallLowering::convert(WaitOp op) {
  OpBuilder builder(op);
  createCall(builder, op.getLoc(), "ddphook_rt_wait", Type(), {op.getTicket()});
  op.erase();
  return success();
}

LogicalResult CallLowering::convert(CastOp op) {
  OpBuilder builder(op);
  Location loc = op.getLoc();
  FailureOr<SmallVector<Value>> pointers =
      getPointers(builder, op, {op.getInput(), op.getDestination()});
  if (failed(pointers))
    return failure();
  Value input = pointers->front(), output = pointers->back();
  createCall(builder, loc, "ddphook_rt_cast", Type(),
             {input, getDtype(builder, loc, op.getInput()), output,
              getDtype(builder, loc, op.getDestination()),
              getInteger(builder, loc,
                         getNumElementsOf(op.getInput().getType()), 64)});
  op.erase();
  return success();
}

LogicalResult CallLowering::convert(ScaleOp op) {
  OpBuilder builder(op);
  Location loc = op.getLoc();
  FailureOr<SmallVector<Value>> pointers =
      getPointers(builder, op, {op.getInput(), op.getDestination()});
  if (failed(pointers))
    return failure();
  Value input = pointers->front(), output = pointers->back();
  Type type = op.getInput().getType();
  Value count = getInteger(builder, loc, getNumElementsOf(type), 64);
  Value dtype = getDtype(builder, loc, op.getInput());
  if (op.getGroup()) {
    Value group =
        getInteger(builder, loc, groupNumbers.lookup(*op.getGroup()), 32);
    createCall(builder, loc, "ddphook_rt_divide_by_world", Type(),
               {group, input, output, count, dtype});
  } else {
    Value factor = LLVM::ConstantOp::create(builder, loc, op.getFactorAttr());
    createCall(builder, loc, "ddphook_rt_scale", Type(),
               {factor, input, output, count, dtype});
  }
  op.erase();
  return success();
}

//===----------------------------------------------------------------------===//
// Low rank
//===----------------------------------------------------------------------===//

/// The number of a matrix list in the plan; equal ones share one.
Value CallLowering::getMatrixList(OpBuilder &builder, Location loc,
                                  MatrixListAttr layout, Type elementType) {
  auto list =
      PlanMatrixListAttr::get(builder.getContext(), elementType, layout);
  auto [it, isNew] = listNumbers.try_emplace(list, plan.matrixLists.size());
  if (isNew)
    plan.matrixLists.push_back(list);
  return getInteger(builder, loc, it->second, 32);
}

template <typename OpTy>
LogicalResult CallLowering::convertBinary(OpTy op, StringRef function) {
  OpBuilder builder(op);
  Location loc = op.getLoc();
  FailureOr<SmallVector<Value>> pointers = getPointers(
      builder, op, {op.getInput(), op.getRhs(), op.getDestination()});
  if (failed(pointers))
    return failure();
  Type type = op.getInput().getType();
  pointers->push_back(getInteger(builder, loc, getNumElementsOf(type), 64));
  pointers->push_back(getDtype(builder, loc, op.getInput()));
  createCall(builder, loc, function, Type(), *pointers);
  op.erase();
  return success();
}

LogicalResult CallLowering::convert(MatmulOp op) {
  OpBuilder builder(op);
  Location loc = op.getLoc();
  // ddphook_matmul_kind_t, and its arguments: matrix, P, Q.
  int64_t kind = 0;
  SmallVector<Value> memrefs = {op.getLhs(), op.getDestination(), op.getRhs()};
  if (op.getTransposeLhs()) {
    kind = 1;
    memrefs = {op.getLhs(), op.getRhs(), op.getDestination()};
  } else if (op.getTransposeRhs()) {
    kind = 2;
    memrefs = {op.getDestination(), op.getLhs(), op.getRhs()};
  }
  FailureOr<SmallVector<Value>> pointers = getPointers(builder, op, memrefs);
  if (failed(pointers))
    return failure();
  SmallVector<Value> arguments = {
      getMatrixList(builder, loc, *op.getLayout(),
                    getElementTypeOf(op.getLhs().getType())),
      getInteger(builder, loc, kind, 32)};
  llvm::append_range(arguments, *pointers);
  createCall(builder, loc, "ddphook_rt_matmul", Type(), arguments);
  op.erase();
  return success();
}

LogicalResult CallLowering::convert(OrthogonalizeOp op) {
  OpBuilder builder(op);
  Location loc = op.getLoc();
  FailureOr<SmallVector<Value>> pointers =
      getPointers(builder, op, {op.getInput(), op.getDestination()});
  if (failed(pointers))
    return failure();
  // ddphook_factor_t: Q, as MatrixListAttr has it, and a flag.
  int64_t factor = op.getUnitColumns() ? 3 : 1;
  createCall(builder, loc, "ddphook_rt_orthogonalize", Type(),
             {getMatrixList(builder, loc, *op.getLayout(),
                            getElementTypeOf(op.getInput().getType())),
              getInteger(builder, loc, factor, 32), (*pointers)[0],
              (*pointers)[1],
              LLVM::ConstantOp::create(builder, loc, op.getEpsilonAttr())});
  op.erase();
  return success();
}

LogicalResult CallLowering::convert(ProjectOp op) {
  OpBuilder builder(op);
  Location loc = op.getLoc();
  SmallVector<Value> into = llvm::to_vector(op.getDestination());
  ArrayRef<int64_t> pieces = op.getLayout()->getPieces().asArrayRef();
  Value m = op.getError() ? into.front() : Value();
  Value p = into[op.getPNumber()];
  Value rest = !pieces.empty() && !op.getPacked() ? into.back() : Value();
  FailureOr<SmallVector<Value>> pointers = getPointers(
      builder, op, {op.getInput(), op.getError(), op.getFactor(), m, p, rest});
  if (failed(pointers))
    return failure();
  if (op.getPacked()) {
    int64_t restSize = 0;
    for (size_t i = 2; i < pieces.size(); i += 3)
      restSize += pieces[i];
    Value offset =
        getInteger(builder, loc, getNumElementsOf(p.getType()) - restSize, 64);
    pointers->back() = LLVM::GEPOp::create(
        builder, loc, pointers->back().getType(), getElementTypeOf(p.getType()),
        (*pointers)[4], offset);
  }
  SmallVector<Value> arguments = {
      getMatrixList(builder, loc, *op.getLayout(),
                    getElementTypeOf(op.getInput().getType()))};
  llvm::append_range(arguments, *pointers);
  createCall(builder, loc, "ddphook_rt_project", Type(), arguments);
  op.erase();
  return success();
}

LogicalResult CallLowering::convert(ReconstructOp op) {
  OpBuilder builder(op);
  Location loc = op.getLoc();
  Value error = op.getMatrix() ? op.getDestination().back() : Value();
  FailureOr<SmallVector<Value>> pointers =
      getPointers(builder, op,
                  {op.getP(), op.getQ(), op.getRest(), op.getMatrix(),
                   op.getDestination().front(), error});
  if (failed(pointers))
    return failure();
  SmallVector<Value> arguments = {getMatrixList(
      builder, loc, *op.getLayout(), getElementTypeOf(op.getP().getType()))};
  llvm::append_range(arguments, *pointers);
  int64_t group =
      op.getGroup() ? int64_t(groupNumbers.lookup(*op.getGroup())) : -1;
  arguments.push_back(getInteger(builder, loc, group, 32));
  createCall(builder, loc, "ddphook_rt_reconstruct", Type(), arguments);
  op.erase();
  return success();
}

LogicalResult CallLowering::convert(AddOp op) {
  return convertBinary(op, "ddphook_rt_add");
}

LogicalResult CallLowering::convert(SubOp op) {
  return convertBinary(op, "ddphook_rt_subtract");
}
