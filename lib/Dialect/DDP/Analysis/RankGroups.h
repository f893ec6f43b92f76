//===- RankGroups.h - over which ranks a value is the same ------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A process group divides the job into parts. A value may be the same on all
// ranks of each part and differ between parts. RankGroups numbers the process
// groups of a module, so that "the same within the parts of these groups" is a
// set of bits, and determines which groups refine which.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_RANKGROUPS_H
#define DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_RANKGROUPS_H

#include "ddphook/Dialect/DDP/IR/DDP.h"

namespace mlir::ddp {

/// A set of process groups, one bit each. As a property of a value: the groups
/// within whose parts all ranks have the same one.
using RankMask = uint64_t;

/// Within every group, the whole job included.
constexpr RankMask kAllRanks = ~RankMask(0);

/// The process groups of a module. Bit 0 is the whole job; groups beyond the
/// 63rd share it, that is, they ask for more than they need.
class RankGroups {
public:
  explicit RankGroups(Operation *module);

  /// The group that `op` names, null if there is none.
  ProcessGroupOp lookup(Operation *op, FlatSymbolRefAttr name);

  /// What a value must have for all ranks of each part to have the same one.
  RankMask getBit(ProcessGroupOp group);

  /// Groups within whose parts a value is the same that is the same within the
  /// parts of `group`: those that refine it.
  RankMask getRefinements(ProcessGroupOp group);

  /// The groups within which the sum over `group` of a value is the same, if
  /// the value was the same within `before`.
  RankMask getMaskOfSum(ProcessGroupOp group, RankMask before);

  /// Whether a reduction over both is one reduction in two steps: no two ranks
  /// meet twice, as within machines and then between them.
  bool areOrthogonal(ProcessGroupOp group, RankMask others);

  /// Whether each part is a single rank, so that nothing is reduced.
  static bool isTrivial(ProcessGroupOp group);

private:
  /// Whether every part of `fine` lies in one part of `coarse`.
  bool refines(ProcessGroupOp fine, ProcessGroupOp coarse);
  ProcessGroupOp getParent(ProcessGroupOp group);
  bool areSiblings(ProcessGroupOp a, ProcessGroupOp b);

  SymbolTableCollection symbols;
  llvm::DenseMap<std::pair<Operation *, Attribute>, ProcessGroupOp> found;
  /// In the order of their bits; null for the whole job.
  SmallVector<ProcessGroupOp> groups;
  llvm::DenseMap<Operation *, RankMask> bits, refinements;
};

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_RANKGROUPS_H
