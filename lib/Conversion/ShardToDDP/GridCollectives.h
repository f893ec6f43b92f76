// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Matches the collectives of the shard dialect, and checks that ddp has them.

#pragma once

#include "../Utils/TensorExchange.h"

#include "mlir/Dialect/Shard/IR/ShardDialect.h"
#include "mlir/Dialect/Shard/IR/ShardOps.h"

#include <optional>

namespace mlir::ddp {

/// Folds the branches of `root` on the process's index that upstream's
/// partitioner creates, if they compute the same on all processes, erases the
/// unused conditions, and replaces the shapes of grids by constants.
void foldProcessIndices(Operation *root);

/// An all-reduce over axes of a grid.
struct GridReduction {
  /// A shard.all_reduce, or a shard.reduce_scatter.
  Operation *op;
  /// The shard.all_gather after a shard.reduce_scatter, or null.
  Operation *gather;
  shard::GridOp grid;
  shard::ReductionKind kind;
  /// In ascending order.
  SmallVector<int16_t> axes;

  Value getInput() const { return op->getOperand(0); }
  Value getResult() const { return (gather ? gather : op)->getResult(0); }
  ArrayRef<int64_t> getGridShape() const {
    return shard::GridOp(grid).getShape();
  }
  /// Returns true if it reduces over several processes along that axis.
  bool isOver(int16_t axis) const {
    return getGridShape()[axis] != 1 && llvm::is_contained(axes, axis);
  }
};

/// Returns the all-reduce that `op` is or begins.
std::optional<GridReduction> matchReduction(Operation *op,
                                            SymbolTableCollection &symbols);

/// Returns why ddp has no equivalent, or an empty text if it has one.
std::string findObstacle(const GridReduction &reduction);

/// A lone reduce-scatter, all-gather, all-to-all or broadcast. (A
/// reduce-scatter with its all-gather is an all-reduce.)
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
