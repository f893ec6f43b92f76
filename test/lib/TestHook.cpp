//===- TestHook.cpp - a hook from another dialect -------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the hooks of the dialect `testhook` expand to.
//
//===----------------------------------------------------------------------===//

#include "TestHook.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

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
  return ddp::ScaleOp::create(builder, loc, bucket.getType(), bucket,
                              builder.getF64FloatAttr(factor),
                              /*group=*/FlatSymbolRefAttr(),
                              /*destination=*/Value())
      .getResult();
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

double ScaledAttr::getLocalPasses(ddp::BucketType) const { return 6; }

FailureOr<Value> FailingAttr::expand(OpBuilder &, const ddp::BucketReduction &,
                                     TypedValue<ddp::BucketType>) const {
  return failure();
}

int64_t FailingAttr::getWireBytes(ddp::BucketType) const { return 0; }

double FailingAttr::getLocalPasses(ddp::BucketType) const { return 0; }

FailureOr<Value>
NarrowingAttr::expand(OpBuilder &builder, const ddp::BucketReduction &reduction,
                      TypedValue<ddp::BucketType> bucket) const {
  ddp::BucketType narrow = bucket.getType().cloneWith(builder.getF16Type());
  return ddp::CastOp::create(builder, reduction.loc, narrow, bucket,
                             /*destination=*/Value())
      .getResult();
}

int64_t NarrowingAttr::getWireBytes(ddp::BucketType) const { return 0; }

double NarrowingAttr::getLocalPasses(ddp::BucketType) const { return 0; }
