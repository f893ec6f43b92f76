// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Creates operations and attributes as StableHLO spells them.

#include "HLOBuilder.h"

#include "mlir/AsmParser/AsmParser.h"

using namespace mlir;
using namespace mlir::ddp;

static constexpr StringRef kDialect = "stablehlo";

bool mlir::ddp::isNarrow(Type elementType) {
  return isa<Float16Type, BFloat16Type>(elementType);
}

Operation *HLOBuilder::createOp(StringRef name, TypeRange results,
                                ValueRange operands,
                                ArrayRef<NamedAttribute> attributes,
                                unsigned numRegions) {
  OperationState state(getLoc(), (kDialect + "." + name).str());
  state.addTypes(results);
  state.addOperands(operands);
  state.addAttributes(attributes);
  for (unsigned i = 0; i < numRegions; ++i)
    state.addRegion();
  return OpBuilder::create(state);
}

TensorValue HLOBuilder::create(StringRef name, RankedTensorType type,
                               ValueRange operands,
                               ArrayRef<NamedAttribute> attributes) {
  return cast<TensorValue>(
      createOp(name, Type(type), operands, attributes)->getResult(0));
}

Attribute HLOBuilder::getAttr(const Twine &text) {
  return parseAttribute(text.str(), getContext());
}

TensorValue HLOBuilder::constant(ElementsAttr value) {
  return create("constant", cast<RankedTensorType>(value.getType()), {},
                getNamedAttr("value", value));
}

TensorValue HLOBuilder::constant(double value, RankedTensorType type) {
  Attribute element = getFloatAttr(type.getElementType(), value);
  return constant(SplatElementsAttr::get(type, element));
}

TensorValue HLOBuilder::constant(int64_t value, RankedTensorType type) {
  Attribute element = getIntegerAttr(type.getElementType(), value);
  return constant(SplatElementsAttr::get(type, element));
}

TensorValue HLOBuilder::compare(StringRef direction, TensorValue lhs,
                                TensorValue rhs) {
  auto type = RankedTensorType::get(lhs.getType().getShape(), getI1Type());
  return create("compare", type, {lhs, rhs},
                getNamedAttr("comparison_direction",
                             getAttr("#stablehlo<comparison_direction " +
                                     direction + ">")));
}

TensorValue HLOBuilder::barrier(TensorValue value) {
  return unary("optimization_barrier", value);
}

TensorValue HLOBuilder::keepRounding(TensorValue value) {
  return isNarrow(value.getType().getElementType()) ? barrier(value) : value;
}

TensorValue HLOBuilder::convert(TensorValue value, Type elementType) {
  Type from = value.getType().getElementType();
  if (from == elementType)
    return value;
  if (from.isF64() && isNarrow(elementType))
    value = barrier(convert(value, getF32Type()));
  auto type = RankedTensorType::get(value.getType().getShape(), elementType);
  return keepRounding(create("convert", type, value));
}

TensorValue HLOBuilder::reshape(TensorValue value, ArrayRef<int64_t> shape) {
  auto type = RankedTensorType::get(shape, value.getType().getElementType());
  return type == value.getType() ? value : create("reshape", type, value);
}

TensorValue HLOBuilder::flatten(TensorValue value) {
  return reshape(value, value.getType().getNumElements());
}

TensorValue HLOBuilder::broadcast(TensorValue value, RankedTensorType type,
                                  ArrayRef<int64_t> dimensions) {
  return create(
      "broadcast_in_dim", type, value,
      getNamedAttr("broadcast_dimensions", getDenseI64ArrayAttr(dimensions)));
}

TensorValue HLOBuilder::slice(TensorValue value, ArrayRef<int64_t> begin,
                              ArrayRef<int64_t> end) {
  SmallVector<int64_t> shape;
  for (auto [first, last] : llvm::zip(begin, end))
    shape.push_back(last - first);
  auto type = RankedTensorType::get(shape, value.getType().getElementType());
  if (type == value.getType())
    return value;
  SmallVector<int64_t> strides(shape.size(), 1);
  return create("slice", type, value,
                {getNamedAttr("start_indices", getDenseI64ArrayAttr(begin)),
                 getNamedAttr("limit_indices", getDenseI64ArrayAttr(end)),
                 getNamedAttr("strides", getDenseI64ArrayAttr(strides))});
}

TensorValue HLOBuilder::concatenate(ArrayRef<TensorValue> values,
                                    int64_t dimension) {
  if (values.size() == 1)
    return values.front();
  RankedTensorType first = values.front().getType();
  SmallVector<int64_t> shape(first.getShape());
  shape[dimension] = 0;
  for (TensorValue value : values)
    shape[dimension] += value.getType().getDimSize(dimension);
  return create("concatenate",
                RankedTensorType::get(shape, first.getElementType()),
                SmallVector<Value>(values.begin(), values.end()),
                getNamedAttr("dimension", getI64IntegerAttr(dimension)));
}

TensorValue HLOBuilder::divideBy(TensorValue value, TensorValue numbers) {
  // Put the barrier after the broadcast; before it, XLA still sees a splat.
  return binary("divide", value, barrier(repeat(numbers, value.getType())));
}

TensorValue HLOBuilder::dot(TensorValue lhs, int64_t lhsDimension,
                            TensorValue rhs, int64_t rhsDimension,
                            Type elementType, int64_t numBatch) {
  SmallVector<int64_t> shape(lhs.getType().getShape().take_front(numBatch));
  auto addOthers = [&](RankedTensorType type, int64_t contracted) {
    for (int64_t i = numBatch; i < type.getRank(); ++i)
      if (i != contracted)
        shape.push_back(type.getDimSize(i));
  };
  addOthers(lhs.getType(), lhsDimension);
  addOthers(rhs.getType(), rhsDimension);
  std::string text = "#stablehlo.dot<";
  llvm::raw_string_ostream os(text);
  for (StringRef side : {"lhs", "rhs"}) {
    if (numBatch == 0)
      break;
    os << side << "_batching_dimensions = [";
    llvm::interleaveComma(llvm::seq(numBatch), os);
    os << "], ";
  }
  os << "lhs_contracting_dimensions = [" << lhsDimension
     << "], rhs_contracting_dimensions = [" << rhsDimension << "]>";
  // At lower precisions some devices round f32 operands.
  Attribute highest = getAttr("#stablehlo<precision HIGHEST>");
  return create(
      "dot_general", RankedTensorType::get(shape, elementType), {lhs, rhs},
      {getNamedAttr("dot_dimension_numbers", getAttr(text)),
       getNamedAttr("precision_config", getArrayAttr({highest, highest}))});
}

void HLOBuilder::addReducer(Operation *op, StringRef name, Type elementType) {
  OpBuilder::InsertionGuard guard(*this);
  auto scalar = RankedTensorType::get({}, elementType);
  Block *block = createBlock(&op->getRegion(0), {}, {scalar, scalar},
                             {getLoc(), getLoc()});
  TensorValue result = create(name, scalar, block->getArguments());
  createOp("return", {}, Value(result));
}

TensorValue HLOBuilder::reduce(StringRef name, TensorValue value,
                               TensorValue init, ArrayRef<int64_t> dimensions) {
  RankedTensorType type = value.getType();
  SmallVector<int64_t> shape;
  for (int64_t i = 0; i < type.getRank(); ++i)
    if (!llvm::is_contained(dimensions, i))
      shape.push_back(type.getDimSize(i));
  Operation *op = createOp(
      "reduce", Type(RankedTensorType::get(shape, type.getElementType())),
      {value, init},
      getNamedAttr("dimensions", getDenseI64ArrayAttr(dimensions)),
      /*numRegions=*/1);
  addReducer(op, name, type.getElementType());
  return cast<TensorValue>(op->getResult(0));
}

TensorValue HLOBuilder::sum(TensorValue value) {
  auto scalar = RankedTensorType::get({}, value.getType().getElementType());
  return reduce("add", value, constant(0.0, scalar),
                value.getType().getRank() - 1);
}

TensorValue HLOBuilder::largest(TensorValue value) {
  auto scalar = RankedTensorType::get({}, value.getType().getElementType());
  return reduce("maximum", unary("abs", value), constant(0.0, scalar),
                value.getType().getRank() - 1);
}

TensorValue
HLOBuilder::collective(StringRef name, RankedTensorType type, TensorValue value,
                       DenseIntElementsAttr groups, int64_t channel,
                       ArrayRef<std::pair<StringRef, int64_t>> numbers) {
  bool isReduction = name == "all_reduce" || name == "reduce_scatter";
  SmallVector<NamedAttribute> attributes = {
      getNamedAttr("channel_handle",
                   getAttr("#stablehlo.channel_handle<handle = " +
                           Twine(channel) + ", type = 1>")),
      getNamedAttr("replica_groups", groups)};
  if (isReduction || name == "all_gather")
    attributes.push_back(getNamedAttr("use_global_device_ids", getUnitAttr()));
  for (auto [key, number] : numbers)
    attributes.push_back(getNamedAttr(key, getI64IntegerAttr(number)));
  Operation *op = createOp(name, Type(type), Value(value), attributes,
                           /*numRegions=*/isReduction);
  if (isReduction)
    addReducer(op, "add", type.getElementType());
  return cast<TensorValue>(op->getResult(0));
}
