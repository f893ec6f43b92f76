//===- BucketSchedule.h - which gradients share a bucket --------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Decides, for one block, which reductions form which bucket and in which order
// the block's operations then stand. Changes no IR: `ddp-bucketize` does.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_BUCKETSCHEDULE_H
#define DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_BUCKETSCHEDULE_H

#include "ddphook/Dialect/DDP/Transforms/Passes.h"

namespace mlir::ddp {

struct BucketLimits {
  int64_t firstBytes, otherBytes;
  BucketOrder order;
};

/// The reductions of one bucket, in the order in which they are packed.
struct Bucket {
  SmallVector<AllReduceOp> members;
  /// Number of members in the order asked for; says where the first stands.
  unsigned firstInOrder;
  /// Whether it was cut out of a larger one because of a dependence.
  bool isSplit = false;
};

/// The operations of a block, but for its terminator, in their new order: an
/// operation, or the number of a bucket that takes the place of its members.
using ScheduledItem = llvm::PointerUnion<Operation *, Bucket *>;

struct BucketSchedule {
  std::vector<std::unique_ptr<Bucket>> buckets; // by their first gradient
  std::vector<ScheduledItem> items;
};

/// Schedules the reductions of tensors in `block`. Takes time
/// O(n log n) in the number of operations.
BucketSchedule scheduleBuckets(Block &block, const BucketLimits &limits);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_BUCKETSCHEDULE_H
