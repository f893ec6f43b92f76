// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The hook's dialect and its expansion; what a compiler and a plugin have in
// common.

#include "MyHook.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

#include "MyHookDialect.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "MyHookAttrs.cpp.inc"

void my::MyDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "MyHookAttrs.cpp.inc"
      >();
}

using namespace mlir;

FailureOr<Value>
my::PrescaledHookAttr::expand(OpBuilder &builder,
                              const ddp::BucketReduction &reduction,
                              TypedValue<ddp::BucketType> bucket) const {
  Value half =
      ddp::ScaleOp::create(builder, reduction.loc, bucket,
                           builder.getF64FloatAttr(0.5), FlatSymbolRefAttr());
  return ddp::buildFinalAllReduce(builder, reduction, half);
}

int64_t my::PrescaledHookAttr::getWireBytes(ddp::BucketType bucket) const {
  return bucket.getNumBytes();
}
