// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// #ddp.topk: every rank sends its largest elements with their indices, and
// keeps the others for its next gradient.

#include "HookState.h"
#include "ShortestNumber.h"

#include <algorithm>

using namespace mlir;
using namespace mlir::ddp;

/// Returns the number of elements that a rank sends.
static int64_t getKeep(TopKHookAttr hook, BucketType bucket) {
  int64_t count = bucket.getNumElements();
  double share = hook.getDensity().getValueAsDouble();
  return std::clamp<int64_t>(static_cast<int64_t>(share * count),
                             std::min<int64_t>(1, count), count);
}

LogicalResult TopKHookAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                   const Parameters &parameters) {
  if (parameters.density > 0 && parameters.density <= 1)
    return success();
  return emitError() << "expected density to be above 0 and at most 1, but got "
                     << getShortestText(parameters.density); // C1
}

LogicalResult
TopKHookAttr::verifyBucket(BucketType bucket,
                           function_ref<InFlightDiagnostic()> emitError) const {
  if (bucket.getNumElements() <= std::numeric_limits<int32_t>::max())
    return success();
  return emitError()
         << "expected less than 2^31 elements in a bucket with hook " << *this
         << ", but got " << bucket; // C2
}

FailureOr<Value> TopKHookAttr::expand(OpBuilder &builder,
                                      const BucketReduction &reduction,
                                      TypedValue<BucketType> bucket) const {
  Location loc = reduction.loc;
  if (reduction.isHierarchical)
    return emitError(loc) << "expected a flat group for hook " << *this
                          << ", but got " << reduction.group
                          << ", which is hierarchical";
  std::optional<int64_t> ranks =
      getStatedSize(getModule(builder).lookupSymbol<ProcessGroupOp>(
          reduction.group.getAttr()));
  if (!ranks)
    return emitError(loc)
           << "expected process group " << reduction.group
           << " to declare its size, as in 'ddp.process_group "
           << reduction.group << " size 2', for hook " << *this
           << ", in which every rank receives what all ranks send";
  BucketType type = bucket.getType();
  if (type.getNumElements() == 0)
    return buildFinalAllReduce(builder, reduction, bucket);

  BucketType wide = type.cloneWith(builder.getF32Type());
  FlatSymbolRefAttr error;
  Value sent = builder.createOrFold<CastOp>(loc, wide, bucket);
  if (getErrorFeedback()) {
    FailureOr<StateOp> state = createGradientState(
        builder, reduction, wide, (getMnemonic() + ".error").str());
    if (failed(state))
      return failure();
    error = FlatSymbolRefAttr::get(state->getSymNameAttr());
    Value last = LoadOp::create(builder, loc, wide, error).getValue();
    sent = AddOp::create(builder, loc, sent, last);
  }
  IntegerAttr keep = builder.getI64IntegerAttr(getKeep(*this, type));
  auto sparse = SparsifyOp::create(builder, loc, sent, keep);
  setCompressedBucket(sparse, reduction.bucketName);
  if (error)
    StoreOp::create(builder, loc, sparse.getRest(), error);
  auto all =
      RankedTensorType::get({2 * keep.getInt() * *ranks}, builder.getF32Type());
  Value gathered = AllGatherOp::create(builder, loc, all, sparse.getEntries(),
                                       reduction.group, /*wire=*/TypeAttr(),
                                       reduction.bucketName);
  Value sum = DensifyOp::create(builder, loc, wide, gathered, keep);
  if (reduction.kind == Reduction::Mean)
    sum = ScaleOp::create(builder, loc, sum, /*factor=*/FloatAttr(),
                          reduction.group);
  return builder.createOrFold<CastOp>(loc, type, sum);
}

Type TopKHookAttr::getWireType(BucketType) const {
  return Float32Type::get(getContext());
}

int64_t TopKHookAttr::getWireBytes(BucketType bucket) const {
  return 2 * sizeof(float) * getKeep(*this, bucket);
}

int64_t TopKHookAttr::getStateBytes(BucketType bucket) const {
  return getErrorFeedback() ? sizeof(float) * bucket.getNumElements() : 0;
}

/// Keeps only what affects the error, which is valid for any density.
Attribute TopKHookAttr::getStateMethod() const {
  Parameters parameters;
  parameters.error_feedback = getErrorFeedback();
  return get(getContext(), parameters);
}
