//===- GradientCount.h - how often a value was reduced ----------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The lattice of ddp-verify-sync: for each value, how often the data that flows
// into it was reduced, and which arguments flow into it unreduced. What the
// parts of it mean is in the description of the pass.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_GRADIENTCOUNT_H
#define DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_GRADIENTCOUNT_H

#include "RankGroups.h"

namespace mlir::ddp {

/// Sets of sources (arguments and other origins of data). A set is a number, 0
/// is the empty one. It is kept as the two that it was made of: in a deep
/// network every value has another set, and hardly any is ever looked at.
class SourceSets {
public:
  SourceSets() : sets(1) {}

  /// The set of one new source.
  unsigned createSource();
  unsigned getUnion(unsigned a, unsigned b);

  /// Whether all of `part` is in `whole`.
  bool contains(unsigned whole, unsigned part) const;

  /// Remembers that something that only this set flows into was worth reducing:
  /// one of the set differs between ranks.
  void addReduced(unsigned set);

  /// Whether data of this set is known to differ between ranks: all of another
  /// set is in it of which one source does.
  bool differs(unsigned set) const;

private:
  struct Set {
    /// Zero for a single source.
    unsigned a = 0, b = 0;
    /// The least of its sources, which are numbered as the sets are.
    unsigned first = 0;
  };
  llvm::DenseSet<unsigned> getSources(unsigned set) const;

  std::vector<Set> sets;
  llvm::DenseMap<std::pair<unsigned, unsigned>, unsigned> unions;
  llvm::DenseSet<unsigned> reduced;
  /// Those by their first source.
  llvm::DenseMap<unsigned, SmallVector<unsigned, 1>> reducedByFirst;
};

/// How often a value was reduced, on any path and in any of its elements.
struct GradientCount {
  enum : uint8_t { Unreduced = 1, Once = 2, Often = 4 };

  /// A set of those. Empty: no data of a rank's own flows in.
  uint8_t times = 0;
  /// Whether they differ between elements rather than between paths.
  bool isMixedInParts = false;
  /// The groups that anything in it was reduced over, and those that its own
  /// elements were, without what only scales them.
  RankMask over = 0, steps = 0;
  /// Whether the latter differ between elements, or between paths.
  bool isMixedInSteps = false;
  /// What flows in unreduced.
  unsigned sources = 0;
  /// Of how many elements it was made: one that is broadcast stays one.
  int64_t elements = 0;
  /// The last reduction on the way.
  Operation *reduction = nullptr;
  /// A reduction on the way that only some ranks may reach, or the call to it.
  Operation *divergent = nullptr;

  bool operator==(const GradientCount &other) const {
    return times == other.times && isMixedInParts == other.isMixedInParts &&
           over == other.over && steps == other.steps &&
           isMixedInSteps == other.isMixedInSteps && sources == other.sources &&
           elements == other.elements && divergent == other.divergent;
  }
};

/// Of an operation that computes every element from all operands: as reduced as
/// the most reduced one. But a norm, or whatever is smaller, does not make what
/// it scales a reduced value.
GradientCount combineCounts(SourceSets &sets, ArrayRef<GradientCount> operands);

/// Of a value that comes from one of several places.
GradientCount joinCounts(SourceSets &sets, const GradientCount &a,
                         const GradientCount &b);

/// Of a value some elements of which come from `part`, others from `rest`.
GradientCount placeCounts(SourceSets &sets, const GradientCount &part,
                          const GradientCount &rest);

/// Of a reduction over `group`.
GradientCount reduceCount(RankGroups &groups, const GradientCount &count,
                          ProcessGroupOp group, Operation *op);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_GRADIENTCOUNT_H
