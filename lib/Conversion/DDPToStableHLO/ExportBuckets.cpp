// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Exports operations on buckets, member by member.

#include "ExportFunction.h"

using namespace mlir;
using namespace mlir::ddp;

Members FunctionExporter::get(Value value) {
  if (isa<BucketType>(value.getType()))
    return buckets.lookup(value);
  return {cast<TensorValue>(value)};
}

void FunctionExporter::set(Value value, Members members) {
  if (isa<BucketType>(value.getType()))
    buckets[value] = std::move(members);
  else
    value.replaceAllUsesWith(members.front());
}

TensorValue FunctionExporter::join(ArrayRef<TensorValue> members,
                                   Type elementType) {
  Members flat;
  for (TensorValue member : members)
    if (member.getType().getNumElements() != 0)
      flat.push_back(hlo.flatten(member));
  if (flat.empty())
    return hlo.constant(0.0, RankedTensorType::get(0, elementType));
  return hlo.concatenate(flat, 0);
}

Members FunctionExporter::split(TensorValue flat, BucketType type) {
  Members members;
  for (unsigned i = 0; i < type.getNumMembers(); ++i) {
    int64_t begin = type.getOffset(i), end = begin + type.getNumElements(i);
    members.push_back(
        hlo.reshape(hlo.slice(flat, begin, end), type.getShape(i)));
  }
  return members;
}

void FunctionExporter::forEach(Value result, Value operand,
                               function_ref<TensorValue(TensorValue)> make) {
  Members members;
  for (TensorValue member : get(operand))
    members.push_back(make(member));
  set(result, members);
}

LogicalResult FunctionExporter::convert(PackOp op) {
  Members members;
  for (Value tensor : op.getTensors())
    members.push_back(cast<TensorValue>(tensor));
  set(op.getBucket(), members);
  return success();
}

LogicalResult FunctionExporter::convert(UnpackOp op) {
  for (auto [tensor, member] : llvm::zip(op.getTensors(), get(op.getBucket())))
    tensor.replaceAllUsesWith(member);
  return success();
}

LogicalResult FunctionExporter::convert(ExtractOp op) {
  Members all = get(op.getBucket()), members;
  for (int64_t member : op.getMembers())
    members.push_back(all[member]);
  set(op.getResult(), members);
  return success();
}

LogicalResult FunctionExporter::convert(SplitOp op) {
  Members all = get(op.getBucket());
  ArrayRef<TensorValue> rest = all;
  for (Value part : op.getParts()) {
    unsigned count = cast<BucketType>(part.getType()).getNumMembers();
    set(part, Members(rest.take_front(count)));
    rest = rest.drop_front(count);
  }
  return success();
}

LogicalResult FunctionExporter::convert(ConcatOp op) {
  Members members;
  for (Value part : op.getParts())
    llvm::append_range(members, get(part));
  if (std::optional<ArrayRef<int64_t>> order = op.getOrder()) {
    Members ordered(members.size());
    for (auto [member, place] : llvm::zip(members, *order))
      ordered[place] = member;
    members = std::move(ordered);
  }
  set(op.getResult(), members);
  return success();
}

/// Returns the elements of `from` as the members of `type`, or nullopt unless
/// each new member is a part of one old member or a sequence of whole ones.
std::optional<Members> FunctionExporter::viewMembers(ArrayRef<TensorValue> from,
                                                     BucketType type) {
  int64_t numElements = 0;
  for (TensorValue member : from)
    numElements += member.getType().getNumElements();
  if (numElements != type.getNumElements())
    return std::nullopt;
  Members to;
  unsigned next = 0;
  while (next < type.getNumMembers()) {
    if (from.empty())
      return std::nullopt;
    int64_t have = from.front().getType().getNumElements(), got = 0;
    int64_t want = type.getNumElements(next);
    if (want >= have) {
      size_t count = 0;
      while (count < from.size() && got < want)
        got += from[count++].getType().getNumElements();
      if (got != want || count == 0)
        return std::nullopt;
      TensorValue whole =
          count == 1 ? from.front()
                     : join(from.take_front(count), type.getElementType());
      to.push_back(hlo.reshape(whole, type.getShape(next++)));
      from = from.drop_front(count);
      continue;
    }
    TensorValue flat = hlo.flatten(from.front());
    for (; got < have && next < type.getNumMembers(); ++next) {
      int64_t end = got + type.getNumElements(next);
      if (end > have)
        return std::nullopt;
      to.push_back(hlo.reshape(hlo.slice(flat, got, end), type.getShape(next)));
      got = end;
    }
    if (got != have)
      return std::nullopt;
    from = from.drop_front();
  }
  return from.empty() ? std::optional(to) : std::nullopt;
}

LogicalResult FunctionExporter::convert(ResizeOp op) {
  auto type = cast<BucketType>(op.getResult().getType());
  if (std::optional<Members> viewed = viewMembers(get(op.getBucket()), type)) {
    set(op.getResult(), *viewed);
    return success();
  }
  setWhole(op.getResult(),
           resize(getWhole(op.getBucket()), type.getNumElements()));
  return success();
}

/// Divides exactly, in at least f32. XLA cannot see the divisor.
TensorValue FunctionExporter::divideByGroup(TensorValue value,
                                            DenseIntElementsAttr groups) {
  int64_t size = groups.getType().getDimSize(1);
  if (size == 1)
    return value;
  Type type = value.getType().getElementType();
  TensorValue wide =
      isNarrow(type) ? hlo.convert(value, hlo.getF32Type()) : value;
  auto scalar = RankedTensorType::get({}, wide.getType().getElementType());
  TensorValue divisor = hlo.constant(static_cast<double>(size), scalar);
  return hlo.convert(hlo.divideBy(wide, divisor), type);
}

LogicalResult FunctionExporter::convert(AllReduceOp op) {
  if (isa<MemRefType>(op.getInput().getType()))
    return refuse(op) << " with an operand in memory";
  if (!isa_and_nonnull<AllReduceHookAttr>(
          op->getAttr(DDPDialect::kHookAttrName)))
    return refuse(op) << "; run 'ddp-expand-hooks' first";
  FailureOr<DenseIntElementsAttr> groups = getRanks(op);
  if (failed(groups))
    return failure();
  Members members = get(op.getInput());
  Type type = getElementTypeOf(op.getInput().getType());
  if (getNumElementsOf(op.getInput().getType()) == 0) {
    set(op.getResult(), members);
    return success();
  }
  if (op.getWire())
    for (TensorValue &member : members)
      member = hlo.convert(member, *op.getWire());
  // A single gradient keeps its shape.
  auto bucket = dyn_cast<BucketType>(op.getInput().getType());
  bool isJoined = bucket && bucket.getNumMembers() > 1;
  TensorValue value =
      isJoined ? join(members, members.front().getType().getElementType())
               : members.front();
  if (op.getReduction() == Reduction::Mean)
    value = divideByGroup(value, *groups);
  value = hlo.keepRounding(hlo.collective("all_reduce", value.getType(), value,
                                          *groups, context.nextChannel++));
  if (isJoined)
    members = split(value, bucket.cloneWith(value.getType().getElementType()));
  else
    members.front() = value;
  for (TensorValue &member : members)
    member = hlo.convert(member, type);
  set(op.getResult(), members);
  return success();
}

LogicalResult FunctionExporter::convert(CastOp op) {
  Type type = getElementTypeOf(op.getResult().getType());
  forEach(op.getResult(), op.getInput(),
          [&](TensorValue member) { return hlo.convert(member, type); });
  return success();
}

LogicalResult FunctionExporter::convert(ScaleOp op) {
  if (op.getGroup()) {
    FailureOr<DenseIntElementsAttr> groups =
        context.groups.lookup(op.getGroupAttr(), op);
    if (failed(groups))
      return failure();
    forEach(op.getResult(), op.getInput(),
            [&](TensorValue member) { return divideByGroup(member, *groups); });
    return success();
  }
  double factor = op.getFactorAttr().getValueAsDouble();
  forEach(op.getResult(), op.getInput(), [&](TensorValue member) {
    Type type = member.getType().getElementType();
    TensorValue wide =
        isNarrow(type) ? hlo.convert(member, hlo.getF32Type()) : member;
    TensorValue factors = hlo.constant(factor, wide.getType());
    return hlo.convert(hlo.binary("multiply", wide, factors), type);
  });
  return success();
}

template <typename OpT>
LogicalResult FunctionExporter::convertBinary(OpT op, StringRef name) {
  Members members;
  for (auto [lhs, rhs] : llvm::zip(get(op.getInput()), get(op.getRhs())))
    members.push_back(hlo.keepRounding(hlo.binary(name, lhs, rhs)));
  set(op.getResult(), members);
  return success();
}

template LogicalResult FunctionExporter::convertBinary(AddOp, StringRef);
template LogicalResult FunctionExporter::convertBinary(SubOp, StringRef);

static TensorValue asMatrix(HLOBuilder &hlo, TensorValue member,
                            std::pair<int64_t, int64_t> shape) {
  return hlo.reshape(member, {shape.first, shape.second});
}

LogicalResult FunctionExporter::convert(MatmulOp op) {
  auto lhsType = cast<BucketType>(op.getLhs().getType());
  auto rhsType = cast<BucketType>(op.getRhs().getType());
  auto type = cast<BucketType>(op.getResult().getType());
  Type elementType = type.getElementType();
  Type wide = isNarrow(elementType) ? hlo.getF32Type() : elementType;
  Members lhs = get(op.getLhs()), rhs = get(op.getRhs()), products;
  std::optional<ArrayRef<int64_t>> chosen = op.getMembers();
  for (unsigned i = 0; i < type.getNumMembers(); ++i) {
    unsigned left = chosen ? (*chosen)[i] : i;
    TensorValue product =
        hlo.dot(asMatrix(hlo, lhs[left], lhsType.getMatrixShape(left)),
                op.getTransposeLhs() ? 0 : 1,
                asMatrix(hlo, rhs[i], rhsType.getMatrixShape(i)),
                op.getTransposeRhs() ? 1 : 0, wide);
    products.push_back(
        hlo.reshape(hlo.convert(product, elementType), type.getShape(i)));
  }
  set(op.getResult(), products);
  return success();
}

/// Returns the function for matrices of a type; inlined, it would be long.
func::FuncOp FunctionExporter::getOrthogonalizer(RankedTensorType type,
                                                 OrthogonalizeOp op) {
  Attribute parameters = hlo.getArrayAttr(
      {op.getEpsilonAttr(), hlo.getBoolAttr(op.getUnitColumns()),
       hlo.getBoolAttr(op.getIndependentColumns())});
  func::FuncOp &made = context.orthogonalizers[{type, parameters}];
  if (made)
    return made;
  OpBuilder atEnd = OpBuilder::atBlockEnd(context.module.getBody());
  std::string name = "ddp_orthogonalize";
  llvm::raw_string_ostream os(name);
  os << '_';
  llvm::interleave(type.getShape(), os, "x");
  os << '_' << type.getElementType();
  made = func::FuncOp::create(atEnd, hlo.getLoc(), name,
                              hlo.getFunctionType(type, type));
  made.setPrivate();
  SymbolTable(context.module).insert(made);
  HLOBuilder body(hlo.getLoc(), hlo.getContext());
  body.setInsertionPointToStart(made.addEntryBlock());
  TensorValue result =
      orthogonalize(body, cast<TensorValue>(Value(made.getArgument(0))), op);
  func::ReturnOp::create(body, Value(result));
  return made;
}

/// Batches matrices of equal shape: XLA compiles each call separately.
LogicalResult FunctionExporter::convert(OrthogonalizeOp op) {
  auto type = cast<BucketType>(op.getInput().getType());
  llvm::MapVector<std::pair<int64_t, int64_t>, SmallVector<int64_t>> byShape;
  for (unsigned i = 0; i < type.getNumMembers(); ++i)
    byShape[type.getMatrixShape(i)].push_back(i);
  Members all = get(op.getInput()), columns(all.size());
  for (const auto &[shape, members] : byShape) {
    auto [rows, rank] = shape;
    Members stacked;
    for (int64_t member : members)
      stacked.push_back(hlo.reshape(all[member], {1, rows, rank}));
    TensorValue matrices = hlo.concatenate(stacked, 0);
    func::FuncOp function = getOrthogonalizer(matrices.getType(), op);
    auto call = func::CallOp::create(hlo, function, ValueRange(matrices));
    auto result = cast<TensorValue>(call.getResult(0));
    for (auto [number, member] : llvm::enumerate(members)) {
      int64_t first = number;
      TensorValue matrix =
          hlo.slice(result, {first, 0, 0}, {first + 1, rows, rank});
      columns[member] = hlo.reshape(matrix, type.getShape(member));
    }
  }
  set(op.getResult(), columns);
  return success();
}

LogicalResult FunctionExporter::convert(IsFiniteOp op) {
  if (isa<MemRefType>(op.getInput().getType()))
    return refuse(op) << " with an operand in memory";
  auto scalar = RankedTensorType::get({}, hlo.getI1Type());
  TensorValue yes = hlo.constant(
      SplatElementsAttr::get(scalar, Attribute(hlo.getBoolAttr(true))));
  TensorValue all = yes;
  for (TensorValue member : get(op.getInput())) {
    RankedTensorType type = member.getType();
    TensorValue each = hlo.create(
        "is_finite", RankedTensorType::get(type.getShape(), hlo.getI1Type()),
        member);
    SmallVector<int64_t> dimensions =
        llvm::to_vector(llvm::seq<int64_t>(type.getRank()));
    all = hlo.binary("and", all, hlo.reduce("and", each, yes, dimensions));
  }
  numbers[op.getResult()] = all;
  return success();
}
