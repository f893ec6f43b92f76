// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Matches a lone reduce-scatter, all-gather, all-to-all or broadcast of the
// shard dialect, and checks that ddp can express it. (A reduce-scatter with its
// all-gather is an all-reduce: GridReduction.h.)

#pragma once

#include "../Utils/TensorExchange.h"

#include "mlir/Dialect/Shard/IR/ShardOps.h"

namespace mlir::ddp {

struct GridExchange : TensorExchange {
  shard::GridOp grid;
  /// In the operation's order: the last axis varies fastest.
  SmallVector<int16_t> axes;
  /// Set for a reduce-scatter.
  std::optional<shard::ReductionKind> reductionKind = std::nullopt;
};

/// Returns the exchange of `op`, or nothing.
std::optional<GridExchange> matchExchange(Operation *op,
                                          SymbolTableCollection &symbols);

/// Returns why ddp has no equivalent, or an empty text if it has one.
std::string findObstacle(const GridExchange &exchange);

} // namespace mlir::ddp
