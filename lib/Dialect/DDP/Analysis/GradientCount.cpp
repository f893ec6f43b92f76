// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The operations on counts.

#include "GradientCount.h"

using namespace mlir;
using namespace mlir::ddp;

unsigned SourceSets::createSource() {
  unsigned number = sets.size();
  sets.push_back({0, 0, number});
  return number;
}

unsigned SourceSets::getUnion(unsigned a, unsigned b) {
  if (a == b || b == 0)
    return a;
  if (a == 0)
    return b;
  auto [it, isNew] = unions.try_emplace(std::minmax(a, b), sets.size());
  if (isNew)
    sets.push_back({a, b, std::min(sets[a].first, sets[b].first)});
  return it->second;
}

llvm::DenseSet<unsigned> SourceSets::getSources(unsigned set) const {
  llvm::DenseSet<unsigned> visited, sources;
  SmallVector<unsigned> worklist = {set};
  while (!worklist.empty()) {
    unsigned next = worklist.pop_back_val();
    if (next == 0 || !visited.insert(next).second)
      continue;
    if (sets[next].a == 0)
      sources.insert(next);
    worklist.append({sets[next].a, sets[next].b});
  }
  return sources;
}

bool SourceSets::contains(unsigned whole, unsigned part) const {
  if (part == 0 || part == whole)
    return true;
  if (whole == 0 || sets[part].first < sets[whole].first)
    return false;
  llvm::DenseSet<unsigned> sources = getSources(whole);
  return llvm::all_of(getSources(part), [&](unsigned source) {
    return sources.contains(source);
  });
}

void SourceSets::addReduced(unsigned set) {
  if (set != 0 && reduced.insert(set).second)
    reducedByFirst[sets[set].first].push_back(set);
}

bool SourceSets::differs(unsigned set) const {
  if (set == 0)
    return false;
  llvm::DenseSet<unsigned> sources = getSources(set);
  // Sets that are known to have a source outside of `sources`.
  llvm::DenseSet<unsigned> outside;
  auto isInside = [&](unsigned candidate) {
    llvm::DenseSet<unsigned> visited;
    SmallVector<unsigned> worklist = {candidate};
    while (!worklist.empty()) {
      unsigned next = worklist.pop_back_val();
      if (next == 0 || !visited.insert(next).second)
        continue;
      bool isStranger = sets[next].a == 0 && !sources.contains(next);
      if (isStranger || outside.contains(next)) {
        outside.insert(next);
        outside.insert(candidate);
        return false;
      }
      worklist.append({sets[next].a, sets[next].b});
    }
    return true;
  };
  for (unsigned source : sources)
    if (auto it = reducedByFirst.find(source); it != reducedByFirst.end())
      if (llvm::any_of(it->second, isInside))
        return true;
  return false;
}

/// Returns the set of the larger numbers of all pairs from the two sets.
static uint8_t maxOfEach(uint8_t a, uint8_t b) {
  if (a == 0 || b == 0)
    return a | b;
  uint8_t result = 0;
  for (uint8_t x : {1, 2, 4})
    for (uint8_t y : {1, 2, 4})
      if ((a & x) && (b & y))
        result |= std::max(x, y);
  return result;
}

/// Copies the operations that a diagnostic needs.
static void addNotes(GradientCount &result, const GradientCount &from) {
  if (!result.reduction || from.times > result.times)
    result.reduction = from.reduction ? from.reduction : result.reduction;
  if (!result.divergent)
    result.divergent = from.divergent;
}

GradientCount mlir::ddp::combineCounts(SourceSets &sets,
                                       ArrayRef<GradientCount> operands) {
  int64_t largest = 0, largestUnreduced = 0;
  for (const GradientCount &count : operands) {
    largest = std::max(largest, count.elements);
    if (count.times & GradientCount::Unreduced)
      largestUnreduced = std::max(largestUnreduced, count.elements);
  }
  GradientCount result;
  for (const GradientCount &count : operands) {
    addNotes(result, count);
    bool isReduced = !(count.times & GradientCount::Unreduced);
    if (isReduced && count.elements < largestUnreduced)
      continue;
    result.times = maxOfEach(result.times, count.times);
    result.isMixedInParts |= count.isMixedInParts;
    result.over |= count.over;
    if (count.elements == largest) {
      result.steps |= count.steps;
      result.isMixedInSteps |= count.isMixedInSteps;
    }
    result.sources = sets.getUnion(result.sources, count.sources);
    result.elements = std::max(result.elements, count.elements);
  }
  return result;
}

GradientCount mlir::ddp::joinCounts(SourceSets &sets, const GradientCount &a,
                                    const GradientCount &b) {
  GradientCount result = a;
  addNotes(result, b);
  result.times |= b.times;
  result.isMixedInParts |= b.isMixedInParts;
  result.over |= b.over;
  result.isMixedInSteps |=
      b.isMixedInSteps || (a.steps && b.steps && a.steps != b.steps);
  result.steps |= b.steps;
  result.sources = sets.getUnion(a.sources, b.sources);
  result.elements = std::max(a.elements, b.elements);
  return result;
}

GradientCount mlir::ddp::placeCounts(SourceSets &sets,
                                     const GradientCount &part,
                                     const GradientCount &rest) {
  GradientCount result = joinCounts(sets, part, rest);
  // If a parameter is updated piece by piece, the rest is a source of each
  // piece.
  bool isPiece = part.times && !(part.times & GradientCount::Unreduced) &&
                 sets.contains(part.sources, rest.sources);
  if (isPiece)
    result.times = maxOfEach(part.times, rest.times);
  else if (part.times && rest.times && part.times != rest.times)
    result.isMixedInParts = true;
  return result;
}

GradientCount mlir::ddp::reduceCount(RankGroups &groups,
                                     const GradientCount &count,
                                     ProcessGroupOp group, Operation *op) {
  if (!group || RankGroups::isTrivial(group))
    return count;
  GradientCount result = count;
  result.times = 0;
  if (count.times == 0 || count.times & GradientCount::Unreduced)
    result.times |= GradientCount::Once;
  // Twice over the same ranks, or in two steps over all of them.
  if (count.times & GradientCount::Once)
    result.times |= groups.areOrthogonal(group, count.over)
                        ? GradientCount::Once
                        : GradientCount::Often;
  if (count.times & GradientCount::Often)
    result.times |= GradientCount::Often;
  result.over |= groups.getBit(group);
  result.steps |= groups.getBit(group);
  result.sources = 0;
  result.reduction = op;
  return result;
}
