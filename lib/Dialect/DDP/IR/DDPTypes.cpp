//===- DDPTypes.cpp --------------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The bucket type: layout, syntax, verification.
//
//===----------------------------------------------------------------------===//

#include "ddphook/Dialect/DDP/IR/DDP.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::ddp;

#define GET_TYPEDEF_CLASSES
#include "ddphook/Dialect/DDP/IR/DDPTypes.cpp.inc"

void DDPDialect::registerTypes() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "ddphook/Dialect/DDP/IR/DDPTypes.cpp.inc"
      >();
}

//===----------------------------------------------------------------------===//
// Syntax: <f32, [1024x512, 512, scalar]>
//===----------------------------------------------------------------------===//

Type BucketType::parse(AsmParser &parser) {
  Type elementType;
  SMLoc location = parser.getCurrentLocation();
  if (parser.parseLess() || parser.parseType(elementType) ||
      parser.parseComma())
    return {};
  SmallVector<DenseI64ArrayAttr> shapes;
  auto parseShape = [&]() -> ParseResult {
    SmallVector<int64_t> shape;
    if (failed(parser.parseOptionalKeyword("scalar")) &&
        parser.parseDimensionList(shape, /*allowDynamic=*/true,
                                  /*withTrailingX=*/false))
      return failure();
    shapes.push_back(DenseI64ArrayAttr::get(parser.getContext(), shape));
    return success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square,
                                     parseShape) ||
      parser.parseGreater())
    return {};
  return BucketType::getChecked([&] { return parser.emitError(location); },
                                parser.getContext(), elementType, shapes);
}

void BucketType::print(AsmPrinter &printer) const {
  printer << "<" << getElementType() << ", [";
  llvm::interleaveComma(getShapes(), printer, [&](DenseI64ArrayAttr shape) {
    if (shape.empty())
      printer << "scalar";
    llvm::interleave(shape.asArrayRef(), printer, "x");
  });
  printer << "]>";
}

LogicalResult BucketType::verify(function_ref<InFlightDiagnostic()> emitError,
                                 Type elementType,
                                 ArrayRef<DenseI64ArrayAttr> shapes) {
  if (!isa<Float16Type, BFloat16Type, Float32Type, Float64Type>(elementType))
    return emitError() << "expected a bucket of f16, bf16, f32 or f64, but got "
                       << elementType;
  for (DenseI64ArrayAttr shape : shapes)
    if (llvm::any_of(shape.asArrayRef(), [](int64_t d) { return d < 0; }))
      return emitError() << "expected static shapes in a bucket";
  return success();
}

LogicalResult FutureType::verify(function_ref<InFlightDiagnostic()> emitError,
                                 Type valueType) {
  if (isa<BucketType>(valueType))
    return success();
  auto tensor = dyn_cast<RankedTensorType>(valueType);
  if (!tensor || !tensor.hasStaticShape() ||
      !isa<Float16Type, BFloat16Type, Float32Type, Float64Type>(
          tensor.getElementType()))
    return emitError() << "expected a future of a bucket or a statically "
                       << "shaped tensor of f16, bf16, f32 or f64, but got "
                       << valueType;
  return success();
}

//===----------------------------------------------------------------------===//
// Layout
//===----------------------------------------------------------------------===//

int64_t BucketType::getNumElements(unsigned member) const {
  return ShapedType::getNumElements(getShape(member));
}

int64_t BucketType::getNumElements() const {
  return getOffset(getNumMembers());
}

int64_t BucketType::getOffset(unsigned member) const {
  int64_t offset = 0;
  for (unsigned i = 0; i < member; ++i)
    offset += getNumElements(i);
  return offset;
}

std::pair<int64_t, int64_t> BucketType::getMatrixShape(unsigned member) const {
  ArrayRef<int64_t> shape = getShape(member);
  if (shape.empty())
    return {1, 1};
  return {shape.front(), ShapedType::getNumElements(shape.drop_front())};
}

BucketType BucketType::cloneWith(Type elementType) const {
  return BucketType::get(getContext(), elementType, getShapes());
}

RankedTensorType BucketType::getFlatType() const {
  return RankedTensorType::get({getNumElements()}, getElementType());
}

RankedTensorType BucketType::getMemberType(unsigned member) const {
  return RankedTensorType::get(getShape(member), getElementType());
}

BucketType BucketType::getFromTensors(MLIRContext *context, Type elementType,
                                      TypeRange tensors) {
  SmallVector<DenseI64ArrayAttr> shapes;
  for (Type type : tensors)
    shapes.push_back(DenseI64ArrayAttr::get(
        context, cast<RankedTensorType>(type).getShape()));
  return BucketType::get(context, elementType, shapes);
}
