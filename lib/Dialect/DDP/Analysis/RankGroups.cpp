// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compares process groups as far as the compiler knows them: by their lists of
// ranks, and by how they are derived from each other.

#include "RankGroups.h"

using namespace mlir;
using namespace mlir::ddp;

/// The maximum length of a chain of parents, in case it contains a cycle.
static constexpr unsigned kMaxParents = 64;

static ArrayRef<int64_t> getRanks(Attribute part) {
  return cast<DenseI64ArrayAttr>(part).asArrayRef();
}

static bool isWholeJob(ProcessGroupOp group) {
  return !group.getPlacement() &&
         (!group.getRanks() || group.getRanks()->size() == 1);
}

bool RankGroups::isTrivial(ProcessGroupOp group) {
  if (group.getSize())
    return *group.getSize() == 1;
  return group.getRanks() && !group.getRanks()->empty() &&
         getRanks((*group.getRanks())[0]).size() == 1;
}

RankGroups::RankGroups(Operation *module) {
  groups.push_back({});
  module->walk([&](ProcessGroupOp group) {
    if (isWholeJob(group) || groups.size() == 64) {
      bits[group] = 1;
      return;
    }
    bits[group] = RankMask(1) << groups.size();
    groups.push_back(group);
  });
}

ProcessGroupOp RankGroups::lookup(Operation *op, FlatSymbolRefAttr name) {
  auto [it, isNew] =
      found.try_emplace({op->getParentWithTrait<OpTrait::SymbolTable>(), name});
  if (isNew)
    it->second = symbols.lookupNearestSymbolFrom<ProcessGroupOp>(op, name);
  return it->second;
}

RankMask RankGroups::getBit(ProcessGroupOp group) { return bits.at(group); }

ProcessGroupOp RankGroups::getParent(ProcessGroupOp group) {
  FlatSymbolRefAttr parent = group.getParentAttr();
  return parent ? lookup(group, parent) : ProcessGroupOp();
}

/// True for two groups that divide the same ranks by machines.
bool RankGroups::areSiblings(ProcessGroupOp a, ProcessGroupOp b) {
  if (!a.getPlacement() || !b.getPlacement())
    return false;
  ProcessGroupOp parentA = getParent(a), parentB = getParent(b);
  return parentA == parentB || ((!parentA || isWholeJob(parentA)) &&
                                (!parentB || isWholeJob(parentB)));
}

/// Maps each rank to the number of its list.
static llvm::DenseMap<int64_t, unsigned> numberParts(ArrayAttr parts) {
  llvm::DenseMap<int64_t, unsigned> numbers;
  for (auto [number, part] : llvm::enumerate(parts))
    for (int64_t rank : getRanks(part))
      numbers[rank] = number;
  return numbers;
}

bool RankGroups::refines(ProcessGroupOp fine, ProcessGroupOp coarse) {
  for (unsigned i = 0; fine && i < kMaxParents; ++i) {
    if (fine == coarse || isTrivial(fine))
      return true;
    if (areSiblings(fine, coarse) &&
        fine.getPlacement() == coarse.getPlacement())
      return true;
    if (fine.getRanks() && coarse.getRanks()) {
      llvm::DenseMap<int64_t, unsigned> parts = numberParts(*coarse.getRanks());
      return llvm::all_of(*fine.getRanks(), [&](Attribute part) {
        return llvm::all_of(getRanks(part), [&](int64_t rank) {
          return parts.contains(rank) &&
                 parts.lookup(rank) == parts.lookup(getRanks(part).front());
        });
      });
    }
    fine = fine.getPlacement() ? getParent(fine) : ProcessGroupOp();
  }
  return false;
}

RankMask RankGroups::getRefinements(ProcessGroupOp group) {
  if (isWholeJob(group))
    return kAllRanks;
  auto [it, isNew] = refinements.try_emplace(group, 0);
  if (!isNew)
    return it->second;
  RankMask mask = 0;
  for (unsigned i = 1; i < groups.size(); ++i)
    if (refines(groups[i], group))
      mask |= RankMask(1) << i;
  return refinements[group] = mask;
}

RankMask RankGroups::getMaskOfSum(ProcessGroupOp group, RankMask before) {
  // A value that is the same on all ranks stays so over the whole job. But
  // machines may have different numbers of ranks, and then their sums differ.
  RankMask mask = getRefinements(group);
  if (!group.getPlacement() && (before & 1))
    return kAllRanks;
  // Summing within machines and then between them covers their parent.
  for (unsigned i = 1; i < groups.size(); ++i)
    if (before >> i & 1 && areSiblings(group, groups[i]) &&
        group.getPlacement() != groups[i].getPlacement()) {
      ProcessGroupOp parent = getParent(group);
      mask |= parent ? getRefinements(parent) : kAllRanks;
    }
  return mask;
}

bool RankGroups::areOrthogonal(ProcessGroupOp group, RankMask others) {
  if (others & 1 || isWholeJob(group))
    return false;
  for (unsigned i = 1; i < groups.size(); ++i) {
    if (!(others >> i & 1))
      continue;
    if (areSiblings(group, groups[i]) &&
        group.getPlacement() != groups[i].getPlacement())
      continue;
    if (!group.getRanks() || !groups[i].getRanks())
      return false;
    llvm::DenseMap<int64_t, unsigned> parts =
        numberParts(*groups[i].getRanks());
    ArrayAttr own = *group.getRanks();
    for (Attribute part : own) {
      llvm::SmallDenseSet<unsigned> met;
      for (int64_t rank : getRanks(part))
        if (!parts.contains(rank) || !met.insert(parts.lookup(rank)).second)
          return false;
    }
  }
  return true;
}
