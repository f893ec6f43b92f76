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
    set(value, {getHLO().reshape(
                   flat, cast<RankedTensorType>(value.getType()).getShape())});
}

TensorValue FunctionExporter::resize(TensorValue flat, int64_t size) {
  HLOBuilder hlo = getHLO();
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

LogicalResult FunctionExporter::convert(ReduceScatterOp op) {
  FailureOr<DenseIntElementsAttr> groups = getRanks(op);
  if (failed(groups))
    return failure();
  HLOBuilder hlo = getHLO();
  Type type = getElementTypeOf(op.getInput().getType());
  context.manifest.scatters.push_back(
      {op.getGroup(), getNumElementsOf(op.getInput().getType()), type,
       op.getWire().value_or(type)});
  int64_t size = groups->getType().getDimSize(1);
  TensorValue value =
      resize(getWhole(op.getInput()), getNumElementsOf(op.getType()) * size);
  if (op.getWire())
    value = hlo.convert(value, *op.getWire());
  if (op.getReduction() == Reduction::Mean)
    value = divideByGroup(value, *groups);
  value = hlo.keepRounding(
      hlo.reduceScatter(value, *groups, context.nextChannel++));
  setWhole(op.getResult(), hlo.convert(value, type));
  return success();
}

LogicalResult FunctionExporter::convert(AllGatherOp op) {
  FailureOr<DenseIntElementsAttr> groups = getRanks(op);
  if (failed(groups))
    return failure();
  HLOBuilder hlo = getHLO();
  TensorValue part = getWhole(op.getInput());
  if (op.getWire())
    part = hlo.convert(part, *op.getWire());
  TensorValue all = hlo.allGather(part, *groups, context.nextChannel++);
  setWhole(op.getResult(),
           hlo.convert(resize(all, getNumElementsOf(op.getType())),
                       getElementTypeOf(op.getType())));
  return success();
}

LogicalResult FunctionExporter::convert(AllToAllOp op) {
  FailureOr<DenseIntElementsAttr> groups = getRanks(op);
  if (failed(groups))
    return failure();
  HLOBuilder hlo = getHLO();
  TensorValue whole = getWhole(op.getInput());
  int64_t size = groups->getType().getDimSize(1);
  TensorValue parts =
      hlo.reshape(whole, {size, whole.getType().getNumElements() / size});
  parts = hlo.allToAll(parts, *groups, context.nextChannel++);
  setWhole(op.getResult(), hlo.flatten(parts));
  return success();
}

LogicalResult FunctionExporter::convert(BroadcastOp op) {
  FailureOr<DenseIntElementsAttr> groups = getRanks(op);
  if (failed(groups))
    return failure();
  setWhole(op.getResult(),
           getHLO().broadcastFrom(getWhole(op.getInput()), *groups,
                                  op.getRoot(), context.nextChannel++));
  return success();
}
