// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The lattice of ddp-verify-sync: for each value, how often the data that flows
// into it was reduced, and which arguments flow into it unreduced. The
// description of the pass explains its parts.

#pragma once

#include "RankGroups.h"

namespace mlir::ddp {

/// Sets of sources (arguments and other origins of data). A set is a number; 0
/// is the empty set. A union is stored as the two sets that it consists of: in
/// a deep network every value has a different set, and few are ever inspected.
class SourceSets {
public:
  SourceSets() : sets(1) {}

  /// Creates a source, and returns the set that contains only it.
  unsigned createSource();
  unsigned getUnion(unsigned a, unsigned b);

  /// True if `part` is a subset of `whole`.
  bool contains(unsigned whole, unsigned part) const;

  /// Records that a value into which exactly this set flows was reduced, so at
  /// least one source of the set differs between ranks.
  void addReduced(unsigned set);

  /// True if data of this set is known to differ between ranks, because the set
  /// contains a set that was reduced.
  bool differs(unsigned set) const;

private:
  struct Set {
    /// Zero for a single source.
    unsigned a = 0, b = 0;
    /// The smallest of its sources, which are numbered like the sets.
    unsigned first = 0;
  };
  llvm::DenseSet<unsigned> getSources(unsigned set) const;

  std::vector<Set> sets;
  llvm::DenseMap<std::pair<unsigned, unsigned>, unsigned> unions;
  llvm::DenseSet<unsigned> reduced;
  /// The reduced sets by their first source.
  llvm::DenseMap<unsigned, SmallVector<unsigned, 1>> reducedByFirst;
};

/// How often a value was reduced, on any path and in any of its elements.
struct GradientCount {
  enum : uint8_t { Unreduced = 1, Once = 2, Often = 4 };

  /// A set of these flags. Empty if all data is the same on all ranks.
  uint8_t times = 0;
  /// True if the numbers differ between elements rather than between paths.
  bool isMixedInParts = false;
  /// The groups that any of its data was reduced over, and those that its own
  /// elements were reduced over, without factors that only scale them.
  RankMask over = 0, steps = 0;
  /// True if `steps` differs between elements or between paths.
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

/// Returns the count of an operation that computes every element from all
/// operands: that of the most reduced operand. But a reduced operand with fewer
/// elements, such as a norm, does not make the result reduced.
GradientCount combineCounts(SourceSets &sets, ArrayRef<GradientCount> operands);

/// Returns the count of a value that is one of two values.
GradientCount joinCounts(SourceSets &sets, const GradientCount &a,
                         const GradientCount &b);

/// Returns the count of a value with elements from `part` and `rest`.
GradientCount placeCounts(SourceSets &sets, const GradientCount &part,
                          const GradientCount &rest);

/// Returns the count of the result of a reduction over `group`.
GradientCount reduceCount(RankGroups &groups, const GradientCount &count,
                          ProcessGroupOp group, Operation *op);

} // namespace mlir::ddp
