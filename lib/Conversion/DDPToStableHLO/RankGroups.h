//===- RankGroups.h - process groups as lists of ranks ----------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// XLA has no process groups: each collective lists its ranks.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_CONVERSION_DDPTOSTABLEHLO_RANKGROUPS_H
#define DDPHOOK_LIB_CONVERSION_DDPTOSTABLEHLO_RANKGROUPS_H

#include "ddphook/Dialect/DDP/IR/DDP.h"

namespace mlir::ddp {

class ListedGroups {
public:
  /// With the number of ranks of the job, or 0 if the module has to say it.
  explicit ListedGroups(ModuleOp module, int64_t numRanks)
      : module(module), numRanks(numRanks) {}

  /// Finds the number of ranks. An error if there are two different ones.
  LogicalResult init();

  std::optional<int64_t> getNumRanks() const {
    return numRanks ? std::optional(numRanks) : std::nullopt;
  }
  /// The ranks of each group, one group a row. An error at `op` if they are not
  /// known to the compiler.
  FailureOr<DenseIntElementsAttr> lookup(FlatSymbolRefAttr group,
                                         Operation *op) const;

private:
  ModuleOp module;
  int64_t numRanks;
};

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_CONVERSION_DDPTOSTABLEHLO_RANKGROUPS_H
