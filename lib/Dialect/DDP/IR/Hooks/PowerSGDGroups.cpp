// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Splits a bucket into groups of matrices for PowerSGD, and joins their
// results.

#include "../LowRankLayout.h"
#include "PowerSGDExpansion.h"
#include "ddphook/Dialect/DDP/IR/Remarks.h"

using namespace mlir;
using namespace mlir::ddp;

/// Splits a bucket into groups of adjacent members. A matrix begins a group if
/// the previous one has a matrix and would exceed the reduction's limit, which
/// is doubled for assigned matrices: two ranks of a node have about half each.
std::vector<PowerSGDGroup> PowerSGDExpansion::makeGroups(BucketType type) {
  SmallVector<int64_t> allFactors =
      llvm::to_vector(llvm::seq<int64_t>(compression.members.size()));
  PowerSGDGroup whole = {type, compression, allFactors, /*firstMember=*/0};
  if (reduction.groupBytes <= 0)
    return {whole};
  llvm::DenseMap<int64_t, int64_t> factorOf;
  for (auto [factor, member] : llvm::enumerate(compression.members))
    factorOf[member] = factor;
  const int64_t shares = acrossNodes ? 2 : 1;
  // The first member of each group.
  SmallVector<int64_t> begins = {0};
  int64_t bytes = 0, numMatrices = 0;
  for (int64_t member : getAllMembers(type)) {
    int64_t size = type.getNumElements(member) * type.getElementBytes();
    bool isMatrix = factorOf.contains(member);
    if (isMatrix && numMatrices != 0 &&
        (bytes + size) / shares > reduction.groupBytes) {
      begins.push_back(member);
      bytes = numMatrices = 0;
    }
    numMatrices += isMatrix;
    bytes += size;
  }
  if (begins.size() == 1)
    return {whole};
  // Only after all groups are reduced is it known if all values are finite, and
  // by then the old error would be overwritten.
  if (parameters.skip_nonfinite) {
    remark::missed(loc, remarkOf("Group", "ddp-expand-hooks"))
        << "no groups with skip_nonfinite";
    return {whole};
  }
  begins.push_back(type.getNumMembers());
  std::vector<PowerSGDGroup> groups;
  for (size_t i = 0; i + 1 < begins.size(); ++i) {
    PowerSGDGroup &group = groups.emplace_back();
    group.firstMember = begins[i];
    for (int64_t member = begins[i]; member < begins[i + 1]; ++member) {
      auto factor = factorOf.find(member);
      if (factor == factorOf.end())
        group.compression.rest.push_back(member - begins[i]);
      else
        group.factors.push_back(factor->second);
    }
    // In the order of the bucket's factors, to keep adjacent ones adjacent.
    llvm::sort(group.factors);
    for (int64_t factor : group.factors)
      group.compression.members.push_back(compression.members[factor] -
                                          begins[i]);
    group.bucket = getSubBucket(
        type, llvm::to_vector(llvm::seq(begins[i], begins[i + 1])));
    group.compression.p = getSubBucket(compression.p, group.factors);
    group.compression.q = getSubBucket(compression.q, group.factors);
  }
  return groups;
}

SmallVector<BucketValue>
PowerSGDExpansion::split(BucketValue bucket, ArrayRef<PowerSGDGroup> groups) {
  if (!bucket || groups.size() == 1)
    return SmallVector<BucketValue>(groups.size(), bucket);
  SmallVector<Type> types;
  for (const PowerSGDGroup &group : groups)
    types.push_back(group.bucket);
  auto op = SplitOp::create(builder, loc, types, bucket);
  return llvm::map_to_vector(
      op.getParts(), [](Value part) { return cast<BucketValue>(part); });
}

BucketValue PowerSGDExpansion::join(BucketType type, ArrayRef<Value> parts) {
  if (!parts.front() || parts.size() == 1)
    return cast_if_present<BucketValue>(parts.front());
  return create<ConcatOp>(type, parts);
}

/// Splits the group's factors into runs that are contiguous in the bucket's.
static SmallVector<ArrayRef<int64_t>> getRuns(const PowerSGDGroup &group) {
  SmallVector<ArrayRef<int64_t>> runs;
  ArrayRef<int64_t> factors = group.factors;
  while (!factors.empty()) {
    size_t size = 1;
    while (size < factors.size() && factors[size] == factors[size - 1] + 1)
      ++size;
    runs.push_back(factors.take_front(size));
    factors = factors.drop_front(size);
  }
  return runs;
}

namespace {
/// A run of adjacent factors, and the group that it belongs to.
struct FactorRun {
  ArrayRef<int64_t> factors;
  size_t group;
};
} // namespace

/// Returns the runs of all groups, in the order of the bucket's factors.
static SmallVector<FactorRun> getAllRuns(ArrayRef<PowerSGDGroup> groups) {
  SmallVector<FactorRun> all;
  for (auto [number, group] : llvm::enumerate(groups))
    for (ArrayRef<int64_t> run : getRuns(group))
      all.push_back({run, number});
  llvm::sort(all, [](const FactorRun &a, const FactorRun &b) {
    return a.factors.front() < b.factors.front();
  });
  return all;
}

/// Returns true if each group's factors are contiguous in the bucket's.
bool PowerSGDExpansion::areAdjacent(ArrayRef<PowerSGDGroup> groups) {
  return llvm::all_of(groups, [](const PowerSGDGroup &group) {
    return getRuns(group).size() <= 1;
  });
}

/// Returns the groups' parts of the bucket's factors, orthogonalized unless
/// `areOrthonormal`. Factors that are not contiguous get an array of their own,
/// into which each run is orthogonalized without a copy.
SmallVector<BucketValue> PowerSGDExpansion::makeBases(
    BucketValue factors, ArrayRef<PowerSGDGroup> groups, bool areOrthonormal) {
  if (groups.size() == 1)
    return {compression.members.empty() ? BucketValue() : factors};
  SmallVector<FactorRun> runs = getAllRuns(groups);
  auto types = llvm::map_to_vector(runs, [&](const FactorRun &run) {
    return Type(getSubBucket(factors.getType(), run.factors));
  });
  auto split = SplitOp::create(builder, loc, types, factors);
  SmallVector<SmallVector<Value>> parts(groups.size());
  for (auto [run, part] : llvm::zip(runs, split.getParts()))
    parts[run.group].push_back(part);
  return llvm::map_to_vector(llvm::zip(groups, parts), [&](auto groupAndParts) {
    auto &[group, ofGroup] = groupAndParts;
    if (!areOrthonormal)
      for (Value &part : ofGroup)
        part = orthogonalize(cast<BucketValue>(part));
    return join(getSubBucket(factors.getType(), group.factors), ofGroup);
  });
}

/// Returns a group's new factor for the state, one value for each run, since
/// runs are not contiguous there. A scaling writes each to its offset: by 1 /
/// world size for a mean, by 1 for a sum. Sets `finished` to the factor of the
/// group's product, which may overwrite `reduced`.
SmallVector<Value> PowerSGDExpansion::makeNewFactor(const PowerSGDGroup &group,
                                                    BucketValue reduced,
                                                    BucketValue &finished) {
  SmallVector<ArrayRef<int64_t>> runs = getRuns(group);
  if (runs.size() <= 1 || !parameters.warm_start) {
    finished = finish(reduced);
    return {finished};
  }
  SmallVector<Type> types;
  int64_t begin = 0;
  for (ArrayRef<int64_t> run : runs) {
    int64_t end = begin + static_cast<int64_t>(run.size());
    types.push_back(getSubBucket(reduced.getType(),
                                 llvm::to_vector(llvm::seq(begin, end))));
    begin = end;
  }
  auto split = SplitOp::create(builder, loc, types, reduced);
  auto parts = llvm::map_to_vector(split.getParts(), [&](Value part) -> Value {
    if (reduction.kind == Reduction::Mean)
      return divideByWorld(cast<BucketValue>(part));
    return create<ScaleOp>(part, builder.getF64FloatAttr(1),
                           FlatSymbolRefAttr());
  });
  // After the operations that read `reduced`, so that it can be in place.
  finished = finish(reduced);
  return parts;
}

/// Joins the results of `makeNewFactor` to the bucket's new factor, in its
/// order.
BucketValue PowerSGDExpansion::joinNewFactor(BucketType type,
                                             ArrayRef<Step> steps,
                                             ArrayRef<PowerSGDGroup> groups) {
  if (groups.size() == 1 || !parameters.warm_start)
    return steps.front().factor;
  SmallVector<ValueRange> parts = llvm::map_to_vector(
      steps, [](const Step &step) { return ValueRange(step.newFactor); });
  SmallVector<Value> inOrder;
  for (const FactorRun &run : getAllRuns(groups)) {
    inOrder.push_back(parts[run.group].front());
    parts[run.group] = parts[run.group].drop_front();
  }
  return join(type, inOrder);
}
