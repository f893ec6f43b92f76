// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A process group divides the job into parts. A value may be the same on all
// ranks of each part and differ between parts. RankGroups numbers the process
// groups of a module, so that "the same within the parts of these groups" is a
// set of bits, and determines which groups refine which.

#pragma once

#include "ddphook/Dialect/DDP/IR/DDP.h"

namespace mlir::ddp {

/// A set of process groups, one bit each. For a value: the groups within whose
/// parts all ranks have the same value.
using RankMask = uint64_t;

/// Within every group, including the whole job.
constexpr RankMask kAllRanks = ~RankMask(0);

/// The process groups of a module. Bit 0 is the whole job. Groups beyond the
/// 63rd use it too, so their requirements are stricter than necessary.
class RankGroups {
public:
  explicit RankGroups(Operation *module);

  /// Returns the group that `op` names, or null if there is none.
  ProcessGroupOp lookup(Operation *op, FlatSymbolRefAttr name);

  /// Returns the bit of a value that is the same within each part of `group`.
  RankMask getBit(ProcessGroupOp group);

  /// Returns the groups that refine `group`: a value that is the same within
  /// the parts of `group` is also the same within theirs.
  RankMask getRefinements(ProcessGroupOp group);

  /// Returns the groups within which the sum over `group` of a value is the
  /// same, if the value was the same within `before`.
  RankMask getMaskOfSum(ProcessGroupOp group, RankMask before);

  /// True if reductions over both are one reduction in two steps: no two ranks
  /// meet twice, such as within machines and then between them.
  bool areOrthogonal(ProcessGroupOp group, RankMask others);

  /// True if each part is a single rank, so that nothing is reduced.
  static bool isTrivial(ProcessGroupOp group);

private:
  /// True if every part of `fine` is in one part of `coarse`.
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
