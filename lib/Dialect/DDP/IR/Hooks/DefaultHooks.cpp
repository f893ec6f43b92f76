// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The expansions and costs of the hooks of PyTorch's default_hooks.py, of
// #ddp.noop, and of #ddp.allreduce_and_upcast: the hook of PyTorch's
// mixed_precision_hooks.py, limited to gradients. It does not change
// parameters.

#include "ddphook/Dialect/DDP/IR/DDP.h"

using namespace mlir;
using namespace mlir::ddp;

/// Casts `bucket` to `elementType`. Returns it unchanged if it has that type.
static TypedValue<BucketType> castTo(OpBuilder &builder, Location loc,
                                     TypedValue<BucketType> bucket,
                                     Type elementType) {
  return cast<TypedValue<BucketType>>(builder.createOrFold<CastOp>(
      loc, bucket.getType().cloneWith(elementType), bucket));
}

/// Builds cast → all-reduce in `wireType` → cast back, or with `accumulate` an
/// all-reduce whose elements are sent in that type and added in f32. Over a
/// hierarchical group a node sums uncompressed values and casts the sum.
static Value expandCast(OpBuilder &builder, const BucketReduction &reduction,
                        TypedValue<BucketType> bucket, Type wireType,
                        Type accumulate) {
  if (accumulate)
    return buildFinalAllReduce(
        builder, reduction, bucket,
        EncodedType::get(builder.getContext(), wireType, /*block=*/0));
  Type elementType = bucket.getType().getElementType();
  if (reduction.isHierarchical && elementType != wireType)
    return buildFinalAllReduce(builder, reduction, bucket, wireType);
  Value reduced = buildFinalAllReduce(
      builder, reduction, castTo(builder, reduction.loc, bucket, wireType));
  return castTo(builder, reduction.loc,
                llvm::cast<TypedValue<BucketType>>(reduced), elementType);
}

/// Returns the operand and wire type of the corresponding reduce-scatter.
static ScatterOperand scatterCast(TypedValue<BucketType> bucket, Type wireType,
                                  Type accumulate) {
  if (accumulate)
    return {bucket,
            EncodedType::get(bucket.getContext(), wireType, /*block=*/0),
            /*step=*/Value()};
  return {bucket,
          bucket.getType().getElementType() == wireType ? Type() : wireType,
          /*step=*/Value()};
}

/// Verifies C1 of both hooks.
static LogicalResult
verifyAccumulate(function_ref<InFlightDiagnostic()> emitError, Type type) {
  if (!type || type.isF32())
    return success();
  return emitError() << "expected accumulate to be f32, but got " << type;
}

FailureOr<Value>
AllReduceHookAttr::expand(OpBuilder &builder, const BucketReduction &reduction,
                          TypedValue<BucketType> bucket) const {
  return buildFinalAllReduce(builder, reduction, bucket);
}

FailureOr<ScatterOperand>
AllReduceHookAttr::prepareScatter(OpBuilder &, const BucketReduction &,
                                  TypedValue<BucketType> bucket) const {
  return ScatterOperand{bucket, Type(), /*step=*/Value()};
}

int64_t AllReduceHookAttr::getWireBytes(BucketType bucket) const {
  return bucket.getNumBytes();
}

#define DDPHOOK_CAST_HOOK(HookT, WireT)                                        \
  LogicalResult HookT::verify(function_ref<InFlightDiagnostic()> emitError,    \
                              const Parameters &parameters) {                  \
    return verifyAccumulate(emitError, parameters.accumulate);                 \
  }                                                                            \
  FailureOr<Value> HookT::expand(OpBuilder &builder,                           \
                                 const BucketReduction &reduction,             \
                                 TypedValue<BucketType> bucket) const {        \
    return expandCast(builder, reduction, bucket, WireT::get(getContext()),    \
                      getAccumulate());                                        \
  }                                                                            \
  FailureOr<ScatterOperand> HookT::prepareScatter(                             \
      OpBuilder &, const BucketReduction &, TypedValue<BucketType> bucket)     \
      const {                                                                  \
    return scatterCast(bucket, WireT::get(getContext()), getAccumulate());     \
  }                                                                            \
  Type HookT::getWireType(BucketType) const {                                  \
    return WireT::get(getContext());                                           \
  }                                                                            \
  int64_t HookT::getWireBytes(BucketType bucket) const {                       \
    return bucket.cloneWith(WireT::get(getContext())).getNumBytes();           \
  }
DDPHOOK_CAST_HOOK(FP16HookAttr, Float16Type)
DDPHOOK_CAST_HOOK(BF16HookAttr, BFloat16Type)
#undef DDPHOOK_CAST_HOOK

FailureOr<Value> NoopHookAttr::expand(OpBuilder &, const BucketReduction &,
                                      TypedValue<BucketType> bucket) const {
  return Value(bucket);
}

int64_t NoopHookAttr::getWireBytes(BucketType) const { return 0; }

bool NoopHookAttr::reducesEveryStep() const { return false; }

LogicalResult WrapHookAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                   Type wireType, Attribute inner) {
  if (!isa<Float16Type, BFloat16Type>(wireType))
    return emitError() << "expected a wrapper to f16 or bf16, but got "
                       << wireType;
  if (!isa<HookAttrInterface>(inner))
    return emitError() << "expected a wrapper around a hook, but got " << inner;
  return success();
}

static BucketType getInnerBucket(WrapHookAttr wrap, BucketType bucket) {
  return bucket.cloneWith(wrap.getWireType());
}

LogicalResult
WrapHookAttr::verifyBucket(BucketType bucket,
                           function_ref<InFlightDiagnostic()> emitError) const {
  return cast<HookAttrInterface>(getInner())
      .verifyBucket(getInnerBucket(*this, bucket), emitError);
}

FailureOr<Value> WrapHookAttr::expand(OpBuilder &builder,
                                      const BucketReduction &reduction,
                                      TypedValue<BucketType> bucket) const {
  TypedValue<BucketType> inner =
      castTo(builder, reduction.loc, bucket, getWireType());
  auto hook = cast<HookAttrInterface>(getInner());
  // On the way back wrappers of a wrapper have no effect: PyTorch too casts the
  // innermost hook's result directly to the bucket's own type.
  while (auto wrap = dyn_cast<WrapHookAttr>(hook)) {
    inner = castTo(builder, reduction.loc, inner, wrap.getWireType());
    hook = cast<HookAttrInterface>(wrap.getInner());
  }
  FailureOr<Value> reduced = hook.expand(builder, reduction, inner);
  if (failed(reduced))
    return failure();
  return Value(castTo(builder, reduction.loc,
                      cast<TypedValue<BucketType>>(*reduced),
                      bucket.getType().getElementType()));
}

Type WrapHookAttr::getWireType(BucketType bucket) const {
  return cast<HookAttrInterface>(getInner())
      .getWireType(getInnerBucket(*this, bucket));
}

bool WrapHookAttr::reducesEveryStep() const {
  return cast<HookAttrInterface>(getInner()).reducesEveryStep();
}

int64_t WrapHookAttr::getWireBytes(BucketType bucket) const {
  return cast<HookAttrInterface>(getInner())
      .getWireBytes(getInnerBucket(*this, bucket));
}

int64_t WrapHookAttr::getStateBytes(BucketType bucket) const {
  return cast<HookAttrInterface>(getInner())
      .getStateBytes(getInnerBucket(*this, bucket));
}

Attribute WrapHookAttr::getStateMethod() const {
  return get(getContext(), getWireType(),
             cast<HookAttrInterface>(getInner()).getStateMethod());
}

LogicalResult
AllReduceAndUpcastHookAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                   const Parameters &parameters) {
  Type type = parameters.reduce_dtype;
  if (type && !isa<Float16Type, BFloat16Type, Float32Type, Float64Type>(type))
    return emitError() << "expected reduce_dtype to be f16, bf16, f32 or f64, "
                          "but got "
                       << type; // C1
  return success();
}

FailureOr<Value>
AllReduceAndUpcastHookAttr::expand(OpBuilder &builder,
                                   const BucketReduction &reduction,
                                   TypedValue<BucketType> bucket) const {
  Location loc = reduction.loc;
  BucketType type = bucket.getType();
  BucketReduction sum = reduction;
  sum.kind = Reduction::Sum;
  Value wide = builder.createOrFold<CastOp>(
      loc, type.cloneWith(getWireType(type)), bucket);
  Value value = buildFinalAllReduce(builder, sum, wide);
  if (reduction.kind == Reduction::Mean)
    value = ScaleOp::create(builder, loc, value, /*factor=*/FloatAttr(),
                            reduction.group);
  return builder.createOrFold<CastOp>(loc, type, value);
}

Type AllReduceAndUpcastHookAttr::getWireType(BucketType bucket) const {
  return getReduceDtype() ? getReduceDtype() : bucket.getElementType();
}

int64_t AllReduceAndUpcastHookAttr::getWireBytes(BucketType bucket) const {
  return bucket.cloneWith(getWireType(bucket)).getNumBytes();
}
