// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// XLA has no process groups: each collective lists its ranks.

#pragma once

#include "ddphook/Dialect/DDP/IR/DDP.h"

namespace mlir::ddp {

class ListedGroups {
public:
  /// `numRanks` is the size of the job, or 0 to take it from the module.
  explicit ListedGroups(ModuleOp module, int64_t numRanks)
      : module(module), numRanks(numRanks) {}

  /// Determines the number of ranks. Fails if the module contradicts it.
  LogicalResult init();

  std::optional<int64_t> getNumRanks() const {
    return numRanks ? std::optional(numRanks) : std::nullopt;
  }
  /// Returns the ranks of each group, one group per row. Emits an error at `op`
  /// if the compiler does not know them.
  FailureOr<DenseIntElementsAttr> lookup(FlatSymbolRefAttr group,
                                         Operation *op) const;

private:
  ModuleOp module;
  int64_t numRanks;
};

} // namespace mlir::ddp
