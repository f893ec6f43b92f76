// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Matches all-reduces of the shard dialect and checks that ddp has them.

#pragma once

#include "mlir/Dialect/Shard/IR/ShardDialect.h"
#include "mlir/Dialect/Shard/IR/ShardOps.h"

#include <optional>

namespace mlir::ddp {

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

} // namespace mlir::ddp
