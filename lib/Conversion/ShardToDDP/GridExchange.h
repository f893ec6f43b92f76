// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Matches a lone reduce-scatter, all-gather, all-to-all or broadcast of the
// shard dialect, checks that ddp can express it, and converts it. (A
// reduce-scatter with its all-gather is an all-reduce: GridReduction.h.)

#pragma once

#include "ddphook/Dialect/DDP/IR/DDP.h"

#include "mlir/Dialect/Shard/IR/ShardDialect.h"
#include "mlir/Dialect/Shard/IR/ShardOps.h"

namespace mlir::ddp {

struct GridExchange {
  /// A shard.reduce_scatter, all_gather, all_to_all or broadcast.
  Operation *op;
  CollectiveKind collective;
  shard::GridOp grid;
  /// In the operation's order: the last axis varies fastest.
  SmallVector<int16_t> axes;
  /// The dimension that is split.
  int64_t dimension = 0;
  /// Set for a reduce-scatter.
  std::optional<shard::ReductionKind> kind;

  /// Returns the number of parts; the grid must have a static shape.
  int64_t getNumParts() const;
};

/// Returns the exchange of `op`, or nothing.
std::optional<GridExchange> matchExchange(Operation *op,
                                          SymbolTableCollection &symbols);

/// Returns why ddp has no equivalent, or an empty text if it has one.
std::string findObstacle(const GridExchange &exchange);

/// Builds the exchange before its operation, with the transposes that make
/// parts contiguous, and returns its result. `hook` may be null and applies to
/// reduce-scatters only.
Value buildExchange(OpBuilder &builder, const GridExchange &exchange,
                    ProcessGroupOp group, Attribute hook);

} // namespace mlir::ddp
