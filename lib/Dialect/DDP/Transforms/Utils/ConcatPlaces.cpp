//===- ConcatPlaces.cpp ----------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See ConcatPlaces.h.
//
//===----------------------------------------------------------------------===//

#include "ConcatPlaces.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::ddp;

Value mlir::ddp::createEmpty(Operation *before, Location loc, Type type) {
  OpBuilder builder(before);
  auto tensor = cast<RankedTensorType>(type);
  return tensor::EmptyOp::create(builder, loc, tensor.getShape(),
                                 tensor.getElementType());
}

PartPlace::PartPlace(OpBuilder &builder, ConcatOp concat, unsigned part) {
  int64_t begin = 0;
  for (Value before : concat.getParts().take_front(part))
    begin += getNumElementsOf(before.getType());
  int64_t numElements = getNumElementsOf(concat.getParts()[part].getType());
  // An empty slice starts at 0, because its own offset may be the end, which is
  // out of bounds.
  offset = builder.getIndexAttr(numElements == 0 ? 0 : begin);
  size = builder.getIndexAttr(numElements);
  stride = builder.getIndexAttr(1);
}

OpOperand *mlir::ddp::findConcatUse(FlatOpInterface op, Value result) {
  if (op->getNumResults() != 1 || !result.hasOneUse() ||
      getNumElementsOf(result.getType()) == 0)
    return nullptr;
  OpOperand &use = *result.use_begin();
  auto concat = dyn_cast<ConcatOp>(use.getOwner());
  bool isPart = concat && concat->getBlock() == op->getBlock() &&
                use.getOperandNumber() < concat.getParts().size();
  return isPart ? &use : nullptr;
}

bool mlir::ddp::isInSamePlace(OpOperand &use, Value part) {
  auto concat = cast<ConcatOp>(use.getOwner());
  auto split = part.getDefiningOp<SplitOp>();
  return concat.getParts().getTypes() == split.getParts().getTypes() &&
         split.getParts()[use.getOperandNumber()] == part;
}
