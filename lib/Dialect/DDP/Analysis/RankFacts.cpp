// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "RankFacts.h"

using namespace mlir;
using namespace mlir::ddp;

int64_t mlir::ddp::getNumElements(Type type) {
  if (auto bucket = dyn_cast<BucketType>(type))
    return bucket.getNumElements();
  if (auto future = dyn_cast<FutureType>(type))
    return getNumElements(future.getValueType());
  auto shaped = dyn_cast<ShapedType>(type);
  if (!shaped)
    return 1;
  return shaped.hasStaticShape() ? shaped.getNumElements() : INT64_MAX;
}

void RankInputs::add(const RankFact &fact) {
  if (counts.empty())
    reducedAs = fact.reducedAs;
  else if (reducedAs != fact.reducedAs)
    reducedAs = nullptr;
  uniform &= fact.uniform;
  counts.push_back(fact.count);
}

bool RankFacts::update(Value value, RankFact next) {
  RankFact &fact = facts[value];
  unsigned before = fact.count.sources;
  if (sources.contains(before, next.count.sources) &&
      sources.contains(next.count.sources, before))
    next.count.sources = before;
  bool isNew = !(next == fact);
  fact = next;
  return isNew;
}

RankFact RankFacts::join(const RankFact &a, const RankFact &b) {
  RankFact result;
  result.uniform = a.uniform & b.uniform;
  result.count = joinCounts(sources, a.count, b.count);
  result.region = unite(a.region, b.region);
  if (a.reducedAs == b.reducedAs)
    result.reducedAs = a.reducedAs;
  return result;
}

MemoryRegion RankFacts::unite(const MemoryRegion &a, const MemoryRegion &b) {
  if (a == b)
    return a;
  std::set<MemoryRegion> all;
  for (const MemoryRegion &region : {a, b})
    if (region.places)
      all.insert(region.places->begin(), region.places->end());
    else
      all.insert({region.root, region.begin, region.end});
  // Loops may find new parts of a buffer for ever: then it is all of it.
  constexpr size_t maxPlaces = 8;
  std::set<MemoryRegion> whole;
  if (all.size() > maxPlaces)
    for (const MemoryRegion &place : all)
      whole.insert({place.root, INT64_MIN, INT64_MAX});
  const std::set<MemoryRegion> &places = whole.empty() ? all : whole;
  const std::vector<MemoryRegion> &known =
      *placeLists.emplace(places.begin(), places.end()).first;
  return {&known, 0, 0, false, &known};
}

RankFact RankFacts::createUnknown(Value value) {
  RankFact fact;
  fact.uniform = 0;
  // A scalar is a setting, not a gradient.
  if (isa<ShapedType, BucketType>(value.getType())) {
    fact.count.times = GradientCount::Unreduced;
    unsigned &source = sourceOf[value.getAsOpaquePointer()];
    if (source == 0)
      source = sources.createSource();
    fact.count.sources = source;
    fact.count.elements = getNumElements(value.getType());
  }
  return fact;
}

RankFact RankFacts::combine(const RankInputs &inputs, Type type) {
  RankFact fact;
  fact.uniform = inputs.uniform;
  fact.count = combineCounts(sources, inputs.counts);
  if (isa<ShapedType, BucketType, FutureType>(type))
    fact.count.elements = std::min(fact.count.elements, getNumElements(type));
  return fact;
}

RankFact RankFacts::combineUnfollowed(const RankInputs &inputs, Type type) {
  RankFact fact = combine(inputs, type);
  for (const GradientCount &count : inputs.counts) {
    int64_t elements = fact.count.elements;
    fact.count = joinCounts(sources, fact.count, count);
    fact.count.elements = elements;
  }
  return fact;
}
