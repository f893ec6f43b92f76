//===- GradientCount.h - how often a value was reduced ----------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The lattice of ddp-verify-sync: for each value, how often the data that flows
// into it was reduced, and which arguments flow into it unreduced. The
// description of the pass explains its parts.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_GRADIENTCOUNT_H
#define DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_GRADIENTCOUNT_H

#include "RankGroups.h"

namespace mlir::ddp {

/// Sets of sources (arguments and other origins of data). A set is a number; 0
/// is the empty set. A union is stored as the two sets of which it consists: in
/// a deep network every value has another set, and hardly any is ever
/// inspected.
class SourceSets {
public:
  SourceSets() : sets(1) {}

  /// The set of one new source.
  unsigned createSource();
  unsigned getUnion(unsigned a, unsigned b);

  /// Whether `part` is a subset of `whole`.
  bool contains(unsigned whole, unsigned part) const;

  /// Remembers that something that only this set flows into was worth reducing:
  /// one of the set differs between ranks.
  void addReduced(unsigned set);

  /// Whether data of this set is known to differ between ranks: it contains a
  /// set of which one source differs.
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

  /// A set of these flags. Empty if no data of a rank's own flows in.
  uint8_t times = 0;
  /// Whether the numbers differ between elements rather than between paths.
  bool isMixedInParts = false;
  /// The groups that anything in it was reduced over, and those that its own
  /// elements were, without what only scales them.
  RankMask over = 0, steps = 0;
  /// Whether the latter differ between elements, or between paths.
  bool isMixedInSteps = false;
  /// The set of sources that flow in unreduced.
  unsigned sources = 0;
  /// Number of elements before any broadcast.
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

/// The count of an operation that computes every element from all operands:
/// that of the most reduced operand. But a reduced operand with fewer elements,
/// such as a norm, does not make the result reduced.
GradientCount combineCounts(SourceSets &sets, ArrayRef<GradientCount> operands);

/// The count of a value that is one of two values.
GradientCount joinCounts(SourceSets &sets, const GradientCount &a,
                         const GradientCount &b);

/// The count of a value with some elements from `part`, and others from `rest`.
GradientCount placeCounts(SourceSets &sets, const GradientCount &part,
                          const GradientCount &rest);

/// The count of the result of a reduction over `group`.
GradientCount reduceCount(RankGroups &groups, const GradientCount &count,
                          ProcessGroupOp group, Operation *op);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_GRADIENTCOUNT_H
