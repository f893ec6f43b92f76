// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// #ddp.allreduce_and_upcast: the hook of PyTorch's mixed_precision_hooks.py,
// limited to gradients. It does not change parameters.

#include "ddphook/Dialect/DDP/IR/DDP.h"

using namespace mlir;
using namespace mlir::ddp;

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
