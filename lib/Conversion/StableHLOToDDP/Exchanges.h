// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Imports StableHLO's collectives other than all-reduces, which sharded
// optimizers and parameters need. They split tensors along any dimension; those
// of ddp split memory into contiguous parts, so that the import adds reshapes
// and transposes.

#pragma once

#include "ReplicaGroups.h"

namespace mlir::ddp {

struct Exchange {
  Operation *op;
  CollectiveKind kind;
  ArrayAttr groups;
  /// The position of a broadcast's source in each group.
  int64_t root = 0;
};

/// Returns the kind of collective of `op`; nullopt if it is none of these.
std::optional<CollectiveKind> getExchangeKind(Operation *op);

/// Fills in the rest of `exchange`, whose operation and kind are set. Returns
/// why ddp has no equivalent; an empty text if it has one.
std::string readExchange(Exchange &exchange, const ReplicaGroups &groups);

/// Replaces the operation by its equivalent over `group`. A reduce-scatter gets
/// `hook`, unless that is null.
void importExchange(const Exchange &exchange, ProcessGroupOp group,
                    Attribute hook);

} // namespace mlir::ddp
