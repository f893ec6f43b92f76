// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads which devices take part in a StableHLO collective.

#pragma once

#include "../Utils/RankLists.h"
#include "Shardings.h"
#include "ddphook/Dialect/DDP/IR/DDP.h"

namespace mlir::ddp {

/// The groups of one module. The ranks of a group are in ascending order, so
/// that equal groups have equal attributes.
class ReplicaGroups {
public:
  ReplicaGroups(ModuleOp module, const Meshes &meshes);

  /// Sets `lists` to the sorted groups of `collective`, and `asListed` to those
  /// before sorting; an empty list is filled in, and axes are expanded. They
  /// must contain each rank once. Returns an error message, empty on success.
  std::string read(Operation *collective, ArrayAttr &lists,
                   RankLists *asListed = nullptr) const;

  /// Returns the names of the mesh axes whose groups of ranks are `lists`, or
  /// nothing if no mesh of the module has such axes.
  SmallVector<StringRef> getAxes(ArrayAttr lists) const;

  /// Returns the process group of these lists, creating it if it is missing.
  ProcessGroupOp get(ArrayAttr lists, Location loc);

  static int64_t getSize(ArrayAttr lists) {
    return cast<DenseI64ArrayAttr>(lists[0]).size();
  }
  /// Returns true if some two ranks are together in a group of `first` and in
  /// one of `second`.
  static bool overlap(ArrayAttr first, ArrayAttr second);

private:
  std::string readDense(DenseIntElementsAttr elements, RankLists &lists) const;

  ModuleOp module;
  const Meshes &meshes;
  SymbolTable symbols;
  /// The program's counts, if the module declares them.
  std::optional<int64_t> numPartitions, numReplicas;
  llvm::DenseMap<Attribute, ProcessGroupOp> groups;
  ProcessGroupOp lastGroup;
};

} // namespace mlir::ddp
