// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Stretches of memory: reads, writes, and joins of two paths.

#include "RankMemory.h"

using namespace mlir;
using namespace mlir::ddp;

/// Memory that was never written has no meaningful contents, so treat it as
/// equal on all ranks. Arguments and states set other initial values.
RankMask RankMemory::getInitial(const void *root) const {
  auto it = initial.find(root);
  return it == initial.end() ? kAllRanks : it->second;
}

MemoryContents RankMemory::read(const MemoryRegion &region) const {
  if (!region.root)
    return {0, nullptr};
  if (region.places) {
    MemoryContents any;
    for (const MemoryRegion &place : *region.places)
      any.uniform &= read(place).uniform;
    return any;
  }
  MemoryContents result;
  bool isFirst = true;
  auto add = [&](const MemoryContents &contents) {
    result.uniform &= contents.uniform;
    if (isFirst)
      result.reducedAs = contents.reducedAs;
    else if (result.reducedAs != contents.reducedAs)
      result.reducedAs = nullptr;
    isFirst = false;
  };
  int64_t covered = region.begin;
  auto it = stretches.upper_bound({region.root, region.begin});
  if (it != stretches.begin() && std::prev(it)->first.first == region.root)
    --it;
  for (; it != stretches.end() && it->first.first == region.root &&
         it->first.second < region.end;
       ++it) {
    if (it->second.end <= region.begin)
      continue;
    if (it->first.second > covered)
      add({getInitial(region.root), nullptr});
    covered = it->second.end;
    add(it->second.contents);
  }
  if (covered < region.end || isFirst)
    add({getInitial(region.root), nullptr});
  return result;
}

void RankMemory::split(const void *root, int64_t at) {
  auto it = stretches.upper_bound({root, at});
  if (it == stretches.begin())
    return;
  --it;
  if (it->first.first != root || it->first.second >= at || it->second.end <= at)
    return;
  Stretch rest = it->second;
  it->second.end = at;
  stretches[{root, at}] = rest;
}

void RankMemory::write(const MemoryRegion &region,
                       const MemoryContents &contents, bool isWhole) {
  if (region.places) {
    for (const MemoryRegion &place : *region.places)
      write(place, contents, /*isWhole=*/false);
    return;
  }
  if (!region.root || region.begin >= region.end)
    return;
  split(region.root, region.begin);
  split(region.root, region.end);
  auto it = stretches.lower_bound({region.root, region.begin});
  if (isWhole && region.isExact) {
    stretches.erase(it, stretches.lower_bound({region.root, region.end}));
    stretches[{region.root, region.begin}] = {region.end, contents};
    return;
  }
  // Written partly: each part keeps its contents or gets these.
  int64_t covered = region.begin;
  auto fill = [&](int64_t end) {
    RankMask uniform = getInitial(region.root) & contents.uniform;
    if (covered < end)
      stretches[{region.root, covered}] = {end, {uniform, nullptr}};
  };
  for (; it != stretches.end() && it->first.first == region.root &&
         it->first.second < region.end;
       ++it) {
    fill(it->first.second);
    covered = it->second.end;
    it->second.contents.uniform &= contents.uniform;
    it->second.contents.reducedAs = nullptr;
  }
  fill(region.end);
}

void RankMemory::join(const RankMemory &other, RankMask choice) {
  for (auto [root, uniform] : other.initial)
    initial.try_emplace(root, uniform);
  // Split both at each other's ends, so that equal starts have equal ends.
  RankMemory cut = other;
  for (const auto &[key, stretch] : other.stretches) {
    split(key.first, key.second);
    split(key.first, stretch.end);
  }
  Stretches before = stretches;
  for (const auto &[key, stretch] : before) {
    cut.split(key.first, key.second);
    cut.split(key.first, stretch.end);
  }
  // The two may differ only where either of them was written.
  auto merge = [&](const void *root, int64_t begin, int64_t end) {
    MemoryRegion region{root, begin, end, true};
    MemoryContents mine = read(region), theirs = other.read(region);
    if (mine == theirs)
      return;
    MemoryContents both;
    both.uniform = mine.uniform & theirs.uniform & choice;
    both.reducedAs =
        mine.reducedAs == theirs.reducedAs ? mine.reducedAs : nullptr;
    write(region, both, /*isWhole=*/true);
  };
  for (const auto &[key, stretch] : before)
    merge(key.first, key.second, stretch.end);
  for (const auto &[key, stretch] : cut.stretches)
    if (!before.count(key))
      merge(key.first, key.second, stretch.end);
  for (const InFlight &collective : other.inFlight)
    if (!llvm::is_contained(inFlight, collective))
      inFlight.push_back(collective);
}

RankMask RankMemory::getUniform(const void *root) const {
  RankMask mask = kAllRanks;
  bool isWritten = false;
  for (auto it = stretches.lower_bound({root, INT64_MIN});
       it != stretches.end() && it->first.first == root; ++it) {
    mask &= it->second.contents.uniform;
    isWritten = true;
  }
  return isWritten ? mask : getInitial(root);
}
