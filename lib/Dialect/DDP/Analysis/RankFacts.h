// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The lattice of RankAnalysis: for each value, within which process groups it
// is the same, how often it was reduced, and which memory it refers to; and how
// these facts combine.

#pragma once

#include "GradientCount.h"
#include "RankMemory.h"

#include "llvm/ADT/SmallVectorExtras.h"

#include <set>

namespace mlir::ddp {

/// Returns 1 for a scalar, and the maximum if the number is unknown.
int64_t getNumElements(Type type);

/// The facts that the analysis knows about a value.
struct RankFact {
  /// The groups within whose parts all ranks have the same value.
  RankMask uniform = kAllRanks;
  GradientCount count;
  /// The memory of a memref. (`uniform` describes the address, not the
  /// contents.)
  MemoryRegion region;
  /// For the result of a bucket's collective: the bucket.
  StringAttr reducedAs;

  bool operator==(const RankFact &other) const {
    return uniform == other.uniform && count == other.count &&
           region == other.region && reducedAs == other.reducedAs;
  }
};

/// The ranks that run a piece of code: the groups within which all ranks run it
/// equally often, and the operations that decide this.
struct RankControl {
  RankMask mask = kAllRanks;
  Operation *op = nullptr;
  const RankControl *outer = nullptr;
};

struct RankInputs {
  RankMask uniform = kAllRanks;
  SmallVector<GradientCount, 4> counts;
  /// Null unless all inputs come from collectives of one bucket.
  StringAttr reducedAs;

  void add(const RankFact &fact);
};

/// The facts about the values of a module. Invariant: a value that was not
/// visited yet is the same on all ranks, and was never reduced.
class RankFacts {
public:
  void reserve(size_t numValues) { facts.reserve(numValues); }
  RankFact lookup(Value value) const { return facts.lookup(value); }
  SmallVector<RankFact> lookupAll(ValueRange values) const {
    return llvm::map_to_vector(values, [&](Value v) { return lookup(v); });
  }
  bool contains(Value value) const { return facts.contains(value); }
  RankFact &operator[](Value value) { return facts[value]; }

  /// Replaces the fact about a value. Returns whether it has changed.
  bool update(Value value, RankFact next);

  /// Returns the fact about a value that is one of two values.
  RankFact join(const RankFact &a, const RankFact &b);

  /// Returns the region of a memref that lies either in `a` or in `b`.
  MemoryRegion unite(const MemoryRegion &a, const MemoryRegion &b);

  /// Returns the fact for data of unknown origin, which may differ on every
  /// rank.
  RankFact createUnknown(Value value);

  /// Returns the fact for elements that are computed from all inputs.
  RankFact combine(const RankInputs &inputs, Type type);

  /// Returns the fact for elements of any input of a region that is not
  /// followed.
  RankFact combineUnfollowed(const RankInputs &inputs, Type type);

  SourceSets sources;

private:
  llvm::DenseMap<Value, RankFact> facts;
  /// For each memref that may be in one of several regions, the list of these.
  std::set<std::vector<MemoryRegion>> placeLists;
  llvm::DenseMap<const void *, unsigned> sourceOf;
};

} // namespace mlir::ddp
