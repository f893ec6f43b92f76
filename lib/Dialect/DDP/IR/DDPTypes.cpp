// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The types of the dialect: layout, syntax, verification.

#include "ddphook/Dialect/DDP/IR/DDP.h"
#include "ddphook/Dialect/DDP/IR/ElementTypes.h"
#include "ddphook/runtime/compiled.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

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

// Syntax: <f32, [1024x512, 512, scalar]>

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

/// True if there are at most `kMaxElements`. Ignores dimensions of size 0,
/// because the products of parts of the shape must not overflow either.
static bool hasAddressableShape(ArrayRef<int64_t> shape) {
  int64_t numElements = 1;
  for (int64_t dim : shape)
    if (dim != 0 && (llvm::MulOverflow(numElements, dim, numElements) ||
                     numElements > kMaxElements))
      return false;
  return true;
}

static bool hasAddressableShapes(ArrayRef<DenseI64ArrayAttr> shapes) {
  int64_t numElements = 0;
  for (DenseI64ArrayAttr shape : shapes) {
    if (!hasAddressableShape(shape.asArrayRef()))
      return false;
    numElements = addElements(numElements,
                              ShapedType::getNumElements(shape.asArrayRef()));
  }
  return numElements <= kMaxElements;
}

bool mlir::ddp::hasAddressableSize(Type type) {
  if (auto bucket = dyn_cast<BucketType>(type))
    return hasAddressableShapes(bucket.getShapes());
  if (auto future = dyn_cast<FutureType>(type))
    return hasAddressableSize(future.getValueType());
  auto shaped = dyn_cast<ShapedType>(type);
  return !shaped || !shaped.hasStaticShape() ||
         hasAddressableShape(shaped.getShape());
}

LogicalResult mlir::ddp::verifyAddressableSizes(Operation *op) {
  for (TypeRange types :
       {TypeRange(op->getOperandTypes()), TypeRange(op->getResultTypes())})
    for (Type type : types)
      if (!hasAddressableSize(type))
        return op->emitOpError() << "expected at most " << kMaxElements
                                 << " elements, but got " << type;
  return success();
}

LogicalResult BucketType::verify(function_ref<InFlightDiagnostic()> emitError,
                                 Type elementType,
                                 ArrayRef<DenseI64ArrayAttr> shapes) {
  if (!isDtype(elementType))
    return emitError() << "expected a bucket of " << getDtypeNames()
                       << ", but got " << elementType;
  for (DenseI64ArrayAttr shape : shapes)
    if (llvm::any_of(shape.asArrayRef(), [](int64_t d) { return d < 0; }))
      return emitError() << "expected static shapes in a bucket";
  if (!hasAddressableShapes(shapes)) // C3
    return emitError() << "expected a bucket of at most " << kMaxElements
                       << " elements";
  return success();
}

LogicalResult FutureType::verify(function_ref<InFlightDiagnostic()> emitError,
                                 Type valueType) {
  if (isa<BucketType>(valueType))
    return success();
  auto tensor = dyn_cast<RankedTensorType>(valueType);
  if (!tensor || !tensor.hasStaticShape() || !isDtype(tensor.getElementType()))
    return emitError() << "expected a future of a bucket or a statically "
                       << "shaped tensor of " << getDtypeNames() << ", but got "
                       << valueType;
  return success();
}

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

LogicalResult EncodedType::verify(function_ref<InFlightDiagnostic()> emitError,
                                  Type code, int64_t block, int64_t stream) {
  const EncodingRow *row = lookupEncoding(code);
  if (!row) // C1
    return emitError() << "expected codes of type " << getEncodingNames()
                       << ", but got " << code;
  if (stream < -1) // C3
    return emitError() << "expected a stream that is not negative, but got "
                       << stream;
  if (stream >= 0 && row->kind != EncodingRow::SCALED) // C3
    return emitError() << "expected codes with a scale, since only these are "
                          "rounded stochastically, but got "
                       << code;
  switch (row->kind) { // C2
  case EncodingRow::CAST:
    if (block == 0)
      return success();
    return emitError() << "expected no blocks of " << code
                       << ", but got blocks "
                       << "of " << block << " elements";
  case EncodingRow::SCALED:
    if (block > 0 && block % DDPHOOK_BLOCK_UNIT == 0 &&
        block <= DDPHOOK_BLOCK_MOST)
      return success();
    return emitError() << "expected blocks of a multiple of "
                       << DDPHOOK_BLOCK_UNIT << " up to " << DDPHOOK_BLOCK_MOST
                       << " elements, but got " << block;
  case EncodingRow::AFFINE:
    if (block < 0 || block > kMaxElements)
      return emitError() << "expected blocks of 1 to " << kMaxElements
                         << " elements, but got " << block;
    // Only whole bytes can be sent.
    if (block % 8 * row->bits % 8 == 0)
      return success();
    return emitError() << "expected blocks of a multiple of " << 8 / row->bits
                       << " elements, but got " << block;
  }
  llvm_unreachable("all kinds were handled");
}

int32_t EncodedType::getEncoding() const {
  return lookupEncoding(getCode())->value;
}

bool EncodedType::isAffine() const {
  return lookupEncoding(getCode())->kind == EncodingRow::AFFINE;
}

int64_t EncodedType::getNumBytes(int64_t numElements) const {
  const EncodingRow *row = lookupEncoding(getCode());
  int64_t codes = llvm::divideCeil(numElements * row->bits, 8);
  if (row->kind == EncodingRow::CAST || numElements == 0)
    return codes;
  int64_t blocks =
      getBlock() == 0 ? 1 : llvm::divideCeil(numElements, getBlock());
  return codes + blocks * (row->kind == EncodingRow::AFFINE ? 8 : 2);
}
