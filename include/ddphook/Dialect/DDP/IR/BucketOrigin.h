//===- BucketOrigin.h - where a bucket's contents come from -----*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a report tells of a bucket beyond the plan: the source line of each
// gradient, and why the bucket has its hook. Passes hand it on in locations,
// through bucketing up to the record of the bucket (`ddp.bucket_info`), so that
// neither the plan, which ranks compare, nor any other result can depend on it.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_DIALECT_DDP_IR_BUCKETORIGIN_H
#define DDPHOOK_DIALECT_DDP_IR_BUCKETORIGIN_H

#include "ddphook/Dialect/DDP/IR/DDP.h"

namespace mlir::ddp {

/// The location of a gradient in a bucket: `loc`, under the gradient's name.
Location getGradientLoc(StringAttr name, Location loc);

/// Notes in the reduction's location that the option `exempt` gave it its hook.
void markExempt(Operation *op, StringRef exempt);

/// The location of the record of a bucket that `op` reduces: that of `op`, and
/// where its hook comes from.
Location getRecordLoc(AllReduceOp op);

/// What the location of a record says.
struct BucketOrigin {
  /// "the operation", "function 'step'", "the module", "option hook" or
  /// "option exempt='…'"; empty where the location does not say it.
  StringRef hookFrom;
  /// The bucket's own location, as its operations have it.
  Location bucket;
  /// The locations of gradients, by name.
  llvm::DenseMap<StringAttr, Location> gradients;
};
BucketOrigin getOrigin(BucketInfoOp record);

} // namespace mlir::ddp

#endif // DDPHOOK_DIALECT_DDP_IR_BUCKETORIGIN_H
