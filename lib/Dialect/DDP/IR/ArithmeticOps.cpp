// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Verifiers and folders of the arithmetic on buckets: sums, casts, scaling.

#include "Verifiers.h"

using namespace mlir;
using namespace mlir::ddp;

/// Verifies C1 of operations on two buckets.
static LogicalResult verifyBinary(Operation *op) {
  Type input = op->getOperand(0).getType(), rhs = op->getOperand(1).getType();
  if (input == rhs)
    return success();
  return op->emitOpError() << "expected operands of one type, but got " << input
                           << " and " << rhs;
}

LogicalResult AddOp::verify() { return verifyBinary(*this); }

LogicalResult SubOp::verify() { return verifyBinary(*this); }

/// True if every value of `from` is a value of `to`.
static bool isLossless(Type from, Type to) {
  if (isa<Float32Type>(to))
    return isa<Float16Type, BFloat16Type, Float32Type>(from);
  return isa<Float64Type>(to) || from == to;
}

LogicalResult CastOp::verify() {
  Type from = getInput().getType(), to = getType();
  auto bucket = dyn_cast<BucketType>(from);
  bool sameShape = from.getTypeID() == to.getTypeID();
  if (sameShape && bucket)
    sameShape = bucket.getShapes() == cast<BucketType>(to).getShapes();
  else if (sameShape)
    sameShape =
        cast<ShapedType>(from).getShape() == cast<ShapedType>(to).getShape();
  if (sameShape) // C1
    return success();
  return emitOpError() << "expected a target of the same shape as " << from
                       << ", but got " << to;
}

OpFoldResult CastOp::fold(FoldAdaptor) {
  if (getInput().getType() == getType())
    return getInput();
  // Skip a first cast that is lossless.
  auto first = getInput().getDefiningOp<CastOp>();
  if (!first || !isLossless(getElementTypeOf(first.getInput().getType()),
                            getElementTypeOf(first.getType())))
    return {};
  if (first.getInput().getType() == getType())
    return first.getInput();
  // The operation is changed in place, so its result stays the same.
  getInputMutable().assign(first.getInput());
  return getResult();
}

LogicalResult EncodingErrorOp::verify() {
  return verifyEncoding(*this); // C1, C2
}

LogicalResult ScaleOp::verify() { return verifyDivisor(*this); } // C1

OpFoldResult ScaleOp::fold(FoldAdaptor) {
  if (getFactor() && getFactor()->convertToDouble() == 1.0)
    return getInput();
  return {};
}
