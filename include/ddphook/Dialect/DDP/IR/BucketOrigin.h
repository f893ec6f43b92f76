// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Facts about a bucket that reports add to the plan: the source line of each
// gradient, and the origin of the bucket's hook. Passes preserve them in
// locations, through bucketing up to the record of the bucket
// (`ddp.bucket_info`), so that neither the plan, which ranks compare, nor any
// other result can depend on them.

#pragma once

#include "ddphook/Dialect/DDP/IR/DDP.h"

namespace mlir::ddp {

/// Returns the location of a gradient in a bucket: `loc`, under the gradient's
/// name.
Location getGradientLoc(StringAttr name, Location loc);

/// Records in the reduction's location that the option `exempt` chose its hook.
void markExempt(Operation *op, StringRef exempt);

/// Returns the location for the record of the bucket that `op` reduces: that of
/// `op`, with the origin of its hook.
Location getRecordLoc(AllReduceOp op);

/// The facts in the location of a record.
struct BucketOrigin {
  /// "the operation", "function 'step'", "the module", "option hook" or "option
  /// exempt='…'"; empty if unknown.
  StringRef hookFrom;
  /// The bucket's own location, which its operations have.
  Location bucket;
  /// The locations of gradients, by name.
  llvm::DenseMap<StringAttr, Location> gradients;
};
BucketOrigin getOrigin(BucketInfoOp record);

} // namespace mlir::ddp
