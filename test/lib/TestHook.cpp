// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the hooks of the dialect `testhook` expand to.

#include "TestHook.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

#include <cmath>

using namespace mlir;
using namespace testhook;

#include "TestHookDialect.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "TestHookAttrs.cpp.inc"

void TestHookDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "TestHookAttrs.cpp.inc"
      >();
}

/// bucket · factor
static Value scale(OpBuilder &builder, Location loc, Value bucket,
                   double factor) {
  return ddp::ScaleOp::create(builder, loc, bucket,
                              builder.getF64FloatAttr(factor),
                              /*group=*/FlatSymbolRefAttr());
}

LogicalResult
ScaledAttr::verifyBucket(ddp::BucketType bucket,
                         function_ref<InFlightDiagnostic()> emitError) const {
  if (bucket.getElementType().isF64())
    return emitError() << "expected a bucket of 16 or 32 bits, but got "
                       << bucket;
  return success();
}

FailureOr<Value> ScaledAttr::expand(OpBuilder &builder,
                                    const ddp::BucketReduction &reduction,
                                    TypedValue<ddp::BucketType> bucket) const {
  double factor = getFactor().getValueAsDouble();
  Value scaled = scale(builder, reduction.loc, bucket, factor);
  Value reduced = ddp::buildFinalAllReduce(builder, reduction, scaled);
  return scale(builder, reduction.loc, reduced, 1 / factor);
}

int64_t ScaledAttr::getWireBytes(ddp::BucketType bucket) const {
  return bucket.getNumBytes();
}

LogicalResult WeightedAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                   const Parameters &parameters) {
  if (!std::isfinite(parameters.weight)) // C1
    return emitError() << "expected a finite weight, but got "
                       << parameters.weight;
  return success();
}

FailureOr<Value>
WeightedAttr::expand(OpBuilder &builder, const ddp::BucketReduction &reduction,
                     TypedValue<ddp::BucketType> bucket) const {
  double weight = getWeight().getValueAsDouble();
  Value weighted = scale(builder, reduction.loc, bucket, weight);
  Value reduced = ddp::buildFinalAllReduce(builder, reduction, weighted);
  return getUndo() ? scale(builder, reduction.loc, reduced, 1 / weight)
                   : reduced;
}

int64_t WeightedAttr::getWireBytes(ddp::BucketType bucket) const {
  return bucket.getNumBytes();
}

/// Error feedback for 16-bit gradients: a hook with a state of its own.
FailureOr<Value>
FeedbackAttr::expand(OpBuilder &builder, const ddp::BucketReduction &reduction,
                     TypedValue<ddp::BucketType> bucket) const {
  Location loc = reduction.loc;
  ddp::BucketType type = bucket.getType();
  FailureOr<ddp::StateOp> state =
      ddp::createGradientState(builder, reduction, type, "testhook.feedback");
  if (failed(state))
    return failure();
  auto symbol = FlatSymbolRefAttr::get(state->getSymNameAttr());

  // m = gradient + error; sent = m in 16 bits; error = what that lacks of m.
  auto cast = [&](Value value, Type elementType) -> Value {
    return ddp::CastOp::create(builder, loc, type.cloneWith(elementType),
                               value);
  };
  Value error = ddp::LoadOp::create(builder, loc, type, symbol);
  Value m = ddp::AddOp::create(builder, loc, bucket, error);
  Value sent = cast(m, builder.getF16Type());
  Value kept = cast(sent, type.getElementType());
  Value lost = ddp::SubOp::create(builder, loc, m, kept);
  ddp::StoreOp::create(builder, loc, lost, symbol);
  return cast(ddp::buildFinalAllReduce(builder, reduction, sent),
              type.getElementType());
}

int64_t FeedbackAttr::getWireBytes(ddp::BucketType bucket) const {
  return 2 * bucket.getNumElements();
}

int64_t FeedbackAttr::getStateBytes(ddp::BucketType bucket) const {
  return bucket.getNumBytes();
}

Type FeedbackAttr::getWireType(ddp::BucketType bucket) const {
  return Float16Type::get(bucket.getContext());
}

FailureOr<Value> ClippedAttr::expand(OpBuilder &builder,
                                     const ddp::BucketReduction &reduction,
                                     TypedValue<ddp::BucketType> bucket) const {
  Location loc = reduction.loc;
  ddp::BucketType type = bucket.getType();
  Type elementType = type.getElementType();
  double limit = getLimit().getValueAsDouble();
  auto constant = [&](double value) -> Value {
    return arith::ConstantOp::create(builder, loc,
                                     builder.getFloatAttr(elementType, value));
  };
  Value high = constant(limit), low = constant(-limit);

  SmallVector<Type> memberTypes;
  for (int64_t member = 0; member < type.getNumMembers(); ++member)
    memberTypes.push_back(type.getMemberType(member));
  auto members = ddp::UnpackOp::create(builder, loc, memberTypes, bucket);
  SmallVector<Value> clipped;
  for (Value member : members.getTensors()) {
    auto memberType = cast<RankedTensorType>(member.getType());
    Value out = tensor::EmptyOp::create(builder, loc, memberType.getShape(),
                                        elementType);
    auto map = linalg::MapOp::create(
        builder, loc, member, out,
        [&](OpBuilder &b, Location loc, ValueRange elements) {
          Value upper = arith::MinimumFOp::create(b, loc, elements[0], high);
          Value both = arith::MaximumFOp::create(b, loc, upper, low);
          linalg::YieldOp::create(b, loc, both);
        });
    clipped.push_back(map->getResult(0));
  }
  return ddp::buildFinalAllReduce(
      builder, reduction, ddp::PackOp::create(builder, loc, type, clipped));
}

int64_t ClippedAttr::getWireBytes(ddp::BucketType bucket) const {
  return bucket.getNumBytes();
}

FailureOr<Value> FailingAttr::expand(OpBuilder &, const ddp::BucketReduction &,
                                     TypedValue<ddp::BucketType>) const {
  return failure();
}

int64_t FailingAttr::getWireBytes(ddp::BucketType) const { return 0; }

FailureOr<Value>
NarrowingAttr::expand(OpBuilder &builder, const ddp::BucketReduction &reduction,
                      TypedValue<ddp::BucketType> bucket) const {
  ddp::BucketType narrow = bucket.getType().cloneWith(builder.getF16Type());
  return ddp::CastOp::create(builder, reduction.loc, narrow, bucket)
      .getResult();
}

int64_t NarrowingAttr::getWireBytes(ddp::BucketType) const { return 0; }
