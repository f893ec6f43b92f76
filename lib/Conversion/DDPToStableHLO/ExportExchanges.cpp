// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Exports reduce-scatters, all-gathers, all-to-alls and broadcasts.

#include "ExportFunction.h"

using namespace mlir;
using namespace mlir::ddp;

TensorValue FunctionExporter::getWhole(Value value) {
  return join(get(value), getElementTypeOf(value.getType()));
}

void FunctionExporter::setWhole(Value value, TensorValue flat) {
  if (auto bucket = dyn_cast<BucketType>(value.getType()))
    set(value, split(flat, bucket));
  else
    set(value, {hlo.reshape(
                   flat, cast<RankedTensorType>(value.getType()).getShape())});
}

TensorValue FunctionExporter::resize(TensorValue flat, int64_t size) {
  int64_t old = flat.getType().getNumElements();
  if (size <= old)
    return hlo.slice(flat, 0, size);
  auto missing =
      RankedTensorType::get(size - old, flat.getType().getElementType());
  return hlo.concatenate({flat, hlo.constant(0.0, missing)}, 0);
}

FailureOr<DenseIntElementsAttr>
FunctionExporter::getRanks(CollectiveOpInterface op) {
  Type wire = op.getWireAttr() ? op.getWireAttr().getValue() : Type();
  if (isa_and_nonnull<EncodedType>(wire))
    return refuse(op) << " with the wire type " << wire
                      << ", for which StableHLO has no operation";
  return context.groups.lookup(op.getGroupAttr(), op);
}

void FunctionExporter::convert(ReduceScatterOp op,
                               DenseIntElementsAttr groups) {
  Type type = getElementTypeOf(op.getInput().getType());
  int64_t part = getNumElementsOf(op.getType());
  context.manifest.scatters.push_back(
      {op.getGroup(), getNumElementsOf(op.getInput().getType()), type,
       op.getWire().value_or(type)});
  TensorValue value =
      resize(getWhole(op.getInput()), part * groups.getType().getDimSize(1));
  if (op.getWire())
    value = hlo.convert(value, *op.getWire());
  if (op.getReduction() == Reduction::Mean)
    value = divideByGroup(value, groups);
  value = hlo.keepRounding(hlo.collective(
      "reduce_scatter", value.getType().clone(part), value, groups,
      context.nextChannel++, {{"scatter_dimension", 0}}));
  setWhole(op.getResult(), hlo.convert(value, type));
}

void FunctionExporter::convert(AllGatherOp op, DenseIntElementsAttr groups) {
  TensorValue part = getWhole(op.getInput());
  if (op.getWire())
    part = hlo.convert(part, *op.getWire());
  int64_t count =
      part.getType().getNumElements() * groups.getType().getDimSize(1);
  TensorValue all =
      hlo.collective("all_gather", part.getType().clone(count), part, groups,
                     context.nextChannel++, {{"all_gather_dim", 0}});
  setWhole(op.getResult(),
           hlo.convert(resize(all, getNumElementsOf(op.getType())),
                       getElementTypeOf(op.getType())));
}

void FunctionExporter::convert(AllToAllOp op, DenseIntElementsAttr groups) {
  TensorValue whole = getWhole(op.getInput());
  int64_t size = groups.getType().getDimSize(1);
  TensorValue parts =
      hlo.reshape(whole, {size, whole.getType().getNumElements() / size});
  parts = hlo.collective(
      "all_to_all", parts.getType(), parts, groups, context.nextChannel++,
      {{"split_dimension", 0}, {"concat_dimension", 0}, {"split_count", size}});
  setWhole(op.getResult(), hlo.flatten(parts));
}

void FunctionExporter::convert(BroadcastOp op, DenseIntElementsAttr groups) {
  SmallVector<int64_t> ranks(groups.getValues<int64_t>());
  int64_t size = groups.getType().getDimSize(1);
  // The first rank of each group is the source.
  for (auto *group = ranks.begin(); group != ranks.end(); group += size)
    std::rotate(group, group + op.getRoot(), group + size);
  TensorValue value = getWhole(op.getInput());
  setWhole(op.getResult(),
           hlo.collective("collective_broadcast", value.getType(), value,
                          DenseIntElementsAttr::get(groups.getType(), ranks),
                          context.nextChannel++));
}
