// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The steps of ddp-import-stablehlo: from the program that JAX writes for all
// devices to that of one rank (Localize.cpp), and from its collectives to
// ddp's.

#pragma once

#include "../Utils/TensorExchange.h"
#include "ReplicaGroups.h"
#include "ValueFlow.h"

#include <string>

namespace mlir::ddp {

/// Rejects collectives of different kinds on one channel of `module`, and emits
/// a remark for equal ones. JAX gives all collectives the same channel, which
/// therefore means nothing.
LogicalResult checkSharedChannels(ModuleOp module);

/// Inlines each sdy.manual_computation, gives the functions around them the
/// types of one rank's tensors, and removes other uses of Shardy's dialect.
/// Reports programs that split tensors without saying how to compute on the
/// shards.
LogicalResult localize(ModuleOp module, const Meshes &meshes);

/// Returns why `collective` does not communicate over a channel between
/// devices, or an empty text if it does or has no channel.
std::string judgeChannel(Operation *collective);

/// A collective other than an all-reduce. Sharded optimizers and parameters
/// need these.
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

/// Calls `foldMean` with StableHLO's operations: JAX has no all-reduce that
/// computes a mean.
bool foldStableHLOMean(AllReduceOp reduction, int64_t size);

/// Names `reductions` without a name after the first result that is computed
/// from them element by element: the parameter's new value.
void nameGradients(ModuleOp module, ValueFlow &flow,
                   ArrayRef<AllReduceOp> reductions);

} // namespace mlir::ddp
