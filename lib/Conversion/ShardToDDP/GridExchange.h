//===- GridExchange.h - parts of tensors in the shard dialect ---*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the shard dialect says of a reduce-scatter or an all-gather by itself,
// whether ddp can say it, and how. (Both together are an all-reduce:
// GridReduction.h.)
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_CONVERSION_SHARDTODDP_GRIDEXCHANGE_H
#define DDPHOOK_LIB_CONVERSION_SHARDTODDP_GRIDEXCHANGE_H

#include "ddphook/Dialect/DDP/IR/DDP.h"

#include "mlir/Dialect/Shard/IR/ShardDialect.h"
#include "mlir/Dialect/Shard/IR/ShardOps.h"

#include <optional>

namespace mlir::ddp {

struct GridExchange {
  /// A shard.reduce_scatter, all_gather, all_to_all or broadcast.
  Operation *op;
  CollectiveKind collective;
  shard::GridOp grid;
  /// As the operation has them: the last one counts first.
  SmallVector<int16_t> axes;
  /// The dimension that is split.
  int64_t dimension = 0;
  /// Of a reduce-scatter.
  std::optional<shard::ReductionKind> kind;

  /// The number of parts; the grid has to be of static shape.
  int64_t getNumParts() const;
};

/// The exchange that `op` is.
std::optional<GridExchange> matchExchange(Operation *op,
                                          SymbolTableCollection &symbols);

/// Why `exchange` has no equivalent in ddp; empty if it has one.
std::string findObstacle(const GridExchange &exchange);

/// Builds the exchange before its operation, and the transposes without which
/// parts would not lie in one piece; `hook`, which may be null, is that of a
/// reduce-scatter. Returns its result.
Value buildExchange(OpBuilder &builder, const GridExchange &exchange,
                    ProcessGroupOp group, Attribute hook);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_CONVERSION_SHARDTODDP_GRIDEXCHANGE_H
