// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Decides, for one block, which reductions form which bucket, and the new order
// of the block's operations. Does not change IR: `ddp-bucketize` does.

#pragma once

#include "Dependences.h"

#include "ddphook/Dialect/DDP/Analysis/Orders.h"

namespace mlir::ddp {

struct BucketLimits {
  int64_t firstBytes, otherBytes;
  BucketOrder order;
};

/// The reductions of one bucket, in the order in which they are packed.
struct Bucket {
  SmallVector<AllReduceOp> members;
  /// Position of the first member among all reductions, in the chosen order.
  unsigned firstInOrder;
  /// True if the bucket was split because of a dependence.
  bool isSplit = false;
};

/// An element of a block in its new order: an operation, or a bucket that
/// replaces its members.
using ScheduledItem = llvm::PointerUnion<Operation *, Bucket *>;

struct BucketSchedule {
  std::vector<std::unique_ptr<Bucket>> buckets; // Sorted by firstInOrder.
  std::vector<ScheduledItem> items;
};

/// Schedules the operations of `block`, without its terminator, and puts its
/// reductions of tensors into buckets. Takes O(n log n) time for n operations.
BucketSchedule scheduleBuckets(Block &block, const TensorsInMemory &inMemory,
                               const BucketLimits &limits);

} // namespace mlir::ddp
