// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks of members and layouts for the verifiers of the low-rank operations.

#pragma once

#include "ddphook/Dialect/DDP/IR/DDP.h"

namespace mlir::ddp {

/// Returns all members of a bucket, in order.
SmallVector<int64_t> getAllMembers(BucketType bucket);

/// Checks that members are in range and distinct, and that their matrices fit
/// the members of the factors P and Q.
LogicalResult verifyFactors(Operation *op, BucketType bucket,
                            ArrayRef<int64_t> members, BucketType p,
                            BucketType q);

/// Returns the locations of members and factors when the bucket is flat.
MatrixListAttr makeLayout(BucketType bucket, ArrayRef<int64_t> members,
                          BucketType p);

/// The flat arrays that a layout describes, or null for those that are missing.
struct FlatArrays {
  Value matrix, p, q, rest;
};

/// Checks that flat operands contain everything in the layout, in one element
/// type.
LogicalResult verifyFlat(Operation *op, MatrixListAttr layout,
                         const FlatArrays &arrays);

/// Checks that arrays of a bucket's size have one size. Ignores null values.
LogicalResult verifySameSize(Operation *op, ArrayRef<Value> values);

} // namespace mlir::ddp
