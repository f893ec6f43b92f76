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
  OperationState state(loc, (kDialect + "." + name).str());
  state.addTypes(results);
  state.addOperands(operands);
  state.addAttributes(attributes);
  for (unsigned i = 0; i < numRegions; ++i)
    state.addRegion();
  return builder.create(state);
}

TensorValue HLOBuilder::create(StringRef name, RankedTensorType type,
                               ValueRange operands,
                               ArrayRef<NamedAttribute> attributes) {
  return cast<TensorValue>(
      createOp(name, Type(type), operands, attributes)->getResult(0));
}

Attribute HLOBuilder::getAttr(const Twine &text) {
  return parseAttribute(text.str(), builder.getContext());
}

TensorValue HLOBuilder::constant(ElementsAttr value) {
  return create("constant", cast<RankedTensorType>(value.getType()), {},
                builder.getNamedAttr("value", value));
}

TensorValue HLOBuilder::constant(double value, RankedTensorType type) {
  Attribute element = builder.getFloatAttr(type.getElementType(), value);
  return constant(SplatElementsAttr::get(type, element));
}

TensorValue HLOBuilder::constant(int64_t value, RankedTensorType type) {
  Attribute element = builder.getIntegerAttr(type.getElementType(), value);
  return constant(SplatElementsAttr::get(type, element));
}

TensorValue HLOBuilder::compare(StringRef direction, TensorValue lhs,
                                TensorValue rhs) {
  auto type =
      RankedTensorType::get(lhs.getType().getShape(), builder.getI1Type());
  return create(
      "compare", type, {lhs, rhs},
      builder.getNamedAttr(
          "comparison_direction",
          getAttr("#stablehlo<comparison_direction " + direction + ">")));
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
    value = barrier(convert(value, builder.getF32Type()));
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
  return create("broadcast_in_dim", type, value,
                builder.getNamedAttr("broadcast_dimensions",
                                     builder.getDenseI64ArrayAttr(dimensions)));
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
  return create(
      "slice", type, value,
      {builder.getNamedAttr("start_indices",
                            builder.getDenseI64ArrayAttr(begin)),
       builder.getNamedAttr("limit_indices", builder.getDenseI64ArrayAttr(end)),
       builder.getNamedAttr("strides", builder.getDenseI64ArrayAttr(strides))});
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
  return create(
      "concatenate", RankedTensorType::get(shape, first.getElementType()),
      SmallVector<Value>(values.begin(), values.end()),
      builder.getNamedAttr("dimension", builder.getI64IntegerAttr(dimension)));
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
      {builder.getNamedAttr("dot_dimension_numbers", getAttr(text)),
       builder.getNamedAttr("precision_config",
                            builder.getArrayAttr({highest, highest}))});
}

void HLOBuilder::addReducer(Operation *op, StringRef name, Type elementType) {
  OpBuilder::InsertionGuard guard(builder);
  auto scalar = RankedTensorType::get({}, elementType);
  Block *block =
      builder.createBlock(&op->getRegion(0), {}, {scalar, scalar}, {loc, loc});
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
      builder.getNamedAttr("dimensions",
                           builder.getDenseI64ArrayAttr(dimensions)),
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

SmallVector<NamedAttribute>
HLOBuilder::getMeeting(DenseIntElementsAttr groups, int64_t channel,
                       bool hasGlobalIds,
                       ArrayRef<std::pair<StringRef, int64_t>> numbers) {
  SmallVector<NamedAttribute> attributes = {
      builder.getNamedAttr("channel_handle",
                           getAttr("#stablehlo.channel_handle<handle = " +
                                   Twine(channel) + ", type = 1>")),
      builder.getNamedAttr("replica_groups", groups)};
  if (hasGlobalIds)
    attributes.push_back(
        builder.getNamedAttr("use_global_device_ids", builder.getUnitAttr()));
  for (auto [name, number] : numbers)
    attributes.push_back(
        builder.getNamedAttr(name, builder.getI64IntegerAttr(number)));
  return attributes;
}

TensorValue HLOBuilder::allReduce(TensorValue value,
                                  DenseIntElementsAttr groups,
                                  int64_t channel) {
  Operation *op = createOp("all_reduce", Type(value.getType()), Value(value),
                           getMeeting(groups, channel), /*numRegions=*/1);
  addReducer(op, "add", value.getType().getElementType());
  return cast<TensorValue>(op->getResult(0));
}

TensorValue HLOBuilder::reduceScatter(TensorValue value,
                                      DenseIntElementsAttr groups,
                                      int64_t channel) {
  auto attributes = getMeeting(groups, channel, /*hasGlobalIds=*/true,
                               {{"scatter_dimension", 0}});
  RankedTensorType type = value.getType();
  int64_t part = type.getDimSize(0) / groups.getType().getDimSize(1);
  Operation *op = createOp("reduce_scatter", Type(type.clone(part)),
                           Value(value), attributes, /*numRegions=*/1);
  addReducer(op, "add", type.getElementType());
  return cast<TensorValue>(op->getResult(0));
}

TensorValue HLOBuilder::allGather(TensorValue part, DenseIntElementsAttr groups,
                                  int64_t channel) {
  auto attributes = getMeeting(groups, channel, /*hasGlobalIds=*/true,
                               {{"all_gather_dim", 0}});
  RankedTensorType type = part.getType();
  return create("all_gather",
                type.clone(type.getDimSize(0) * groups.getType().getDimSize(1)),
                part, attributes);
}

TensorValue HLOBuilder::allToAll(TensorValue parts, DenseIntElementsAttr groups,
                                 int64_t channel) {
  auto attributes =
      getMeeting(groups, channel, /*hasGlobalIds=*/false,
                 {{"split_dimension", 0},
                  {"concat_dimension", 0},
                  {"split_count", groups.getType().getDimSize(1)}});
  return create("all_to_all", parts.getType(), parts, attributes);
}

TensorValue HLOBuilder::broadcastFrom(TensorValue value,
                                      DenseIntElementsAttr groups, int64_t root,
                                      int64_t channel) {
  SmallVector<int64_t> ranks(groups.getValues<int64_t>());
  int64_t size = groups.getType().getDimSize(1);
  // The first rank of each group is the source.
  for (auto *group = ranks.begin(); group != ranks.end(); group += size)
    std::rotate(group, group + root, group + size);
  auto rotated = DenseIntElementsAttr::get(groups.getType(), ranks);
  return create("collective_broadcast", value.getType(), value,
                getMeeting(rotated, channel, /*hasGlobalIds=*/false));
}
