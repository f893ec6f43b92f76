// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Of the dialect `testhook` the hooks that compress: signs, and the largest
// elements. Both keep what they do not send (error feedback).

#include "TestHook.h"

#include <algorithm>

using namespace mlir;
using namespace testhook;

/// The state of this name, which the current value is read from.
static Value load(OpBuilder &builder, Location loc, ddp::StateOp state) {
  return ddp::LoadOp::create(builder, loc, state.getType(),
                             FlatSymbolRefAttr::get(state.getSymNameAttr()));
}

static void store(OpBuilder &builder, Location loc, Value value,
                  ddp::StateOp state) {
  ddp::StoreOp::create(builder, loc, value,
                       FlatSymbolRefAttr::get(state.getSymNameAttr()));
}

//===----------------------------------------------------------------------===//
// #testhook.sign
//===----------------------------------------------------------------------===//

LogicalResult SignAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                               const Parameters &parameters) {
  if (parameters.block_size < 0 || parameters.block_size % 8 != 0) // C1
    return emitError() << "expected block_size to be a multiple of 8, but got "
                       << parameters.block_size;
  return success();
}

FailureOr<Value> SignAttr::expand(OpBuilder &builder,
                                  const ddp::BucketReduction &reduction,
                                  TypedValue<ddp::BucketType> bucket) const {
  Location loc = reduction.loc;
  if (reduction.isHierarchical)
    return emitError(loc) << "expected a flat group, where a rank knows what "
                             "its gradient loses";
  Type wire = getWireType(bucket.getType());
  FailureOr<ddp::StateOp> state = ddp::createGradientState(
      builder, reduction, bucket.getType(), "testhook.error");
  if (failed(state))
    return failure();
  Value m =
      ddp::AddOp::create(builder, loc, bucket, load(builder, loc, *state));
  Value lost =
      ddp::EncodingErrorOp::create(builder, loc, m, TypeAttr::get(wire));
  store(builder, loc, lost, *state);
  return ddp::buildFinalAllReduce(builder, reduction, m, wire);
}

Type SignAttr::getWireType(ddp::BucketType bucket) const {
  MLIRContext *context = bucket.getContext();
  Type code = IntegerType::get(context, 1, IntegerType::Unsigned);
  return ddp::EncodedType::get(context, code, getBlockSize());
}

int64_t SignAttr::getWireBytes(ddp::BucketType bucket) const {
  auto wire = cast<ddp::EncodedType>(getWireType(bucket));
  return wire.getNumBytes(bucket.getNumElements());
}

int64_t SignAttr::getStateBytes(ddp::BucketType bucket) const {
  return bucket.getNumBytes();
}

//===----------------------------------------------------------------------===//
// #testhook.top_k
//===----------------------------------------------------------------------===//

LogicalResult TopKAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                               const Parameters &parameters) {
  if (!(parameters.density >= 0 && parameters.density <= 1)) // C1
    return emitError() << "expected density to be from 0 to 1, but got "
                       << parameters.density;
  return success();
}

/// Elements that a rank sends.
static int64_t getKeep(TopKAttr hook, ddp::BucketType bucket) {
  auto count = static_cast<double>(bucket.getNumElements());
  auto keep =
      static_cast<int64_t>(hook.getDensity().getValueAsDouble() * count);
  return std::min(bucket.getNumElements(), std::max<int64_t>(1, keep));
}

FailureOr<Value> TopKAttr::expand(OpBuilder &builder,
                                  const ddp::BucketReduction &reduction,
                                  TypedValue<ddp::BucketType> bucket) const {
  Location loc = reduction.loc;
  auto module =
      builder.getInsertionBlock()->getParentOp()->getParentOfType<ModuleOp>();
  std::optional<int64_t> ranks = ddp::getStatedSize(
      module.lookupSymbol<ddp::ProcessGroupOp>(reduction.group.getAttr()));
  if (!ranks)
    return emitError(loc) << "expected process group " << reduction.group
                          << " to declare its size, since every rank receives "
                             "the same number of elements of each";
  ddp::BucketType type = bucket.getType();
  if (type.getNumElements() == 0)
    return ddp::buildFinalAllReduce(builder, reduction, bucket);
  ddp::BucketType wide = type.cloneWith(builder.getF32Type());
  FailureOr<ddp::StateOp> state =
      ddp::createGradientState(builder, reduction, wide, "testhook.rest");
  if (failed(state))
    return failure();

  IntegerAttr keep = builder.getI64IntegerAttr(getKeep(*this, type));
  Value gradient = builder.createOrFold<ddp::CastOp>(loc, wide, bucket);
  Value m =
      ddp::AddOp::create(builder, loc, gradient, load(builder, loc, *state));
  auto sparse = ddp::SparsifyOp::create(builder, loc, m, keep);
  ddp::setCompressedBucket(sparse, reduction.bucketName);
  store(builder, loc, sparse.getRest(), *state);
  auto all =
      RankedTensorType::get({2 * keep.getInt() * *ranks}, builder.getF32Type());
  Value gathered = ddp::AllGatherOp::create(
      builder, loc, all, sparse.getEntries(), reduction.group,
      /*wire=*/TypeAttr(), reduction.bucketName);
  Value sum = ddp::DensifyOp::create(builder, loc, wide, gathered, keep);
  if (reduction.kind == ddp::Reduction::Mean)
    sum = ddp::ScaleOp::create(builder, loc, sum, /*factor=*/FloatAttr(),
                               reduction.group);
  return builder.createOrFold<ddp::CastOp>(loc, type, sum);
}

Type TopKAttr::getWireType(ddp::BucketType bucket) const {
  return Float32Type::get(bucket.getContext());
}

int64_t TopKAttr::getWireBytes(ddp::BucketType bucket) const {
  return bucket.getNumElements() == 0 ? 0 : 8 * getKeep(*this, bucket);
}

int64_t TopKAttr::getStateBytes(ddp::BucketType bucket) const {
  return 4 * bucket.getNumElements();
}
