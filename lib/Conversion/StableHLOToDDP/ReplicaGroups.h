//===- ReplicaGroups.h - replica groups to process groups -------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a collective of StableHLO says of the devices that take part in it.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_CONVERSION_STABLEHLOTODDP_REPLICAGROUPS_H
#define DDPHOOK_LIB_CONVERSION_STABLEHLOTODDP_REPLICAGROUPS_H

#include "../Utils/RankLists.h"
#include "Shardings.h"
#include "ddphook/Dialect/DDP/IR/DDP.h"

namespace mlir::ddp {

/// The groups of one module. A group's ranks are lists in ascending order, so
/// that the same groups are the same attribute.
class ReplicaGroups {
public:
  ReplicaGroups(ModuleOp module, const Meshes &meshes);

  /// Sets `lists` to the sorted lists of ranks of `collective`, and `asListed`
  /// to the lists as written. Returns why ddp has no such groups; an empty text
  /// if it has.
  std::string read(Operation *collective, ArrayAttr &lists,
                   RankLists *asListed = nullptr) const;

  /// The names of the axes of a mesh over which these groups reduce; empty if
  /// no mesh of the module has them.
  SmallVector<StringRef> getAxes(ArrayAttr lists) const;

  /// The process group of these lists, which is created if it is missing.
  ProcessGroupOp get(ArrayAttr lists, Location loc);

  static int64_t getSize(ArrayAttr lists) {
    return cast<DenseI64ArrayAttr>(lists[0]).size();
  }
  /// Whether two ranks are in one group of both.
  static bool overlap(ArrayAttr first, ArrayAttr second);

private:
  std::string readDense(DenseIntElementsAttr elements, RankLists &lists) const;

  ModuleOp module;
  const Meshes &meshes;
  SymbolTable symbols;
  /// Of the whole program, where the module says it.
  std::optional<int64_t> numPartitions, numReplicas;
  llvm::DenseMap<Attribute, ProcessGroupOp> groups;
  ProcessGroupOp lastGroup;
};

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_CONVERSION_STABLEHLOTODDP_REPLICAGROUPS_H
