// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Verifiers of the operations on the largest elements, on values and on flat
// arrays.

#include "Verifiers.h"

#include <limits>

using namespace mlir;
using namespace mlir::ddp;

/// Checks that all of these have f32 elements, few enough for 32-bit indices.
static LogicalResult verifyElements(Operation *op, ArrayRef<Type> types) {
  for (Type type : types) {
    if (!getElementTypeOf(type).isF32())
      return op->emitOpError() << "expected elements of f32, but got " << type;
    if (getNumElementsOf(type) > std::numeric_limits<int32_t>::max())
      return op->emitOpError()
             << "expected less than 2^31 elements, but got " << type;
  }
  return success();
}

static LogicalResult verifySparsify(Operation *op, int64_t keep, Type input,
                                    Type entries) {
  if (keep < 0 || keep > getNumElementsOf(input)) // C2
    return op->emitOpError()
           << "expected to keep 0 to " << getNumElementsOf(input)
           << " elements, but got " << keep;
  if (getNumElementsOf(entries) == 2 * keep) // C3
    return success();
  return op->emitOpError() << "expected " << keep
                           << " elements and as many indices, but got "
                           << entries;
}

static LogicalResult verifyDensify(Operation *op, int64_t keep, Type entries) {
  if (keep <= 0) // C2
    return op->emitOpError()
           << "expected at least 1 kept element, but got " << keep;
  if (getNumElementsOf(entries) % (2 * keep) == 0) // C3
    return success();
  return op->emitOpError() << "expected a multiple of " << 2 * keep
                           << " entries, but got " << entries;
}

LogicalResult
SparsifyOp::inferReturnTypes(MLIRContext *context, std::optional<Location> loc,
                             ValueRange operands, DictionaryAttr attributes,
                             OpaqueProperties properties, RegionRange regions,
                             SmallVectorImpl<Type> &types) {
  Adaptor adaptor(operands, attributes, properties, regions);
  int64_t keep = adaptor.getKeep();
  if (keep < 0) // C2
    return emitOptionalError(loc,
                             "expected to keep at least 0 elements, but "
                             "got ",
                             keep);
  types.push_back(RankedTensorType::get({2 * keep}, Float32Type::get(context)));
  types.push_back(adaptor.getInput().getType());
  return success();
}

LogicalResult SparsifyOp::verify() {
  Type input = getInput().getType();
  if (failed(verifyElements(*this, {input, getEntries().getType()}))) // C1
    return failure();
  return verifySparsify(*this, getKeep(), input, getEntries().getType());
}

LogicalResult DensifyOp::verify() {
  if (failed(verifyElements(*this, {getEntries().getType(), getType()}))) // C1
    return failure();
  return verifyDensify(*this, getKeep(), getEntries().getType());
}

/// Checks that all operands are arrays of one kind, with elements of f32.
static LogicalResult verifyArrays(Operation *op) {
  if (failed(verifyOneKind(op, op->getOperandTypes())))
    return failure();
  return verifyElements(op, llvm::to_vector(op->getOperandTypes()));
}

LogicalResult FlatSparsifyOp::verify() {
  if (failed(verifyCount(*this, getDestination().size(), 2,
                         "'into' operands"))) // C1
    return failure();
  Type input = getInput().getType(),
       entries = getDestination().front().getType(),
       rest = getDestination().back().getType();
  if (failed(verifyArrays(*this)) || // C1
      failed(verifySparsify(*this, getKeep(), input, entries)))
    return failure();
  if (getNumElementsOf(rest) == getNumElementsOf(input)) // C4
    return success();
  return emitOpError() << "expected the rest to have the operand's size, but "
                       << "got " << rest << " of " << input;
}

LogicalResult FlatDensifyOp::verify() {
  if (failed(verifyArrays(*this))) // C1
    return failure();
  return verifyDensify(*this, getKeep(), getEntries().getType());
}
