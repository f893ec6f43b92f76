// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Imports StableHLO's collectives other than all-reduces, which sharded
// optimizers and parameters need.

#pragma once

#include "../Utils/TensorExchange.h"
#include "ReplicaGroups.h"

namespace mlir::ddp {

struct Exchange : TensorExchange {
  ArrayAttr groups;
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
