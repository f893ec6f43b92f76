//===- PowerSGDGroups.cpp --------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How PowerSGD takes a bucket apart into groups of matrices, and puts together
// what becomes of them.
//
//===----------------------------------------------------------------------===//

#include "../LowRankLayout.h"
#include "PowerSGDExpansion.h"

#include "mlir/IR/Remarks.h"

using namespace mlir;
using namespace mlir::ddp;

/// The members of a bucket in groups: each has at least one matrix, and more of
/// them only as long as it has no more bytes than the reduction wishes.
std::vector<PowerSGDGroup> PowerSGDExpansion::makeGroups(BucketType type) {
  SmallVector<int64_t> allFactors =
      llvm::to_vector(llvm::seq<int64_t>(compression.members.size()));
  PowerSGDGroup whole = {type, compression, allFactors};
  if (reduction.groupBytes <= 0)
    return {whole};
  llvm::DenseMap<int64_t, int64_t> factorOf;
  for (auto [factor, member] : llvm::enumerate(compression.members))
    factorOf[member] = factor;
  // Where groups begin.
  SmallVector<int64_t> begins = {0};
  int64_t bytes = 0, numMatrices = 0;
  for (int64_t member : getAllMembers(type)) {
    int64_t size = type.getNumElements(member) * type.getElementBytes();
    bool isMatrix = factorOf.contains(member);
    if (isMatrix && numMatrices != 0 && bytes + size > reduction.groupBytes) {
      begins.push_back(member);
      bytes = numMatrices = 0;
    }
    numMatrices += isMatrix;
    bytes += size;
  }
  if (begins.size() == 1)
    return {whole};
  // Whether what was reduced is finite is known when all groups are through,
  // and by then the old error would be gone.
  if (parameters.skip_nonfinite) {
    remark::missed(
        loc, remark::RemarkOpts::name("Group").category("ddp-expand-hooks"))
        << "no groups with skip_nonfinite";
    return {whole};
  }
  begins.push_back(type.getNumMembers());
  std::vector<PowerSGDGroup> groups;
  for (size_t i = 0; i + 1 < begins.size(); ++i) {
    PowerSGDGroup &group = groups.emplace_back();
    for (int64_t member = begins[i]; member < begins[i + 1]; ++member) {
      auto factor = factorOf.find(member);
      if (factor == factorOf.end())
        group.compression.rest.push_back(member - begins[i]);
      else
        group.factors.push_back(factor->second);
    }
    // In the order of the bucket's factors, so that adjacent ones stay so.
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

/// The groups' parts of a bucket.
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

/// What `split` took apart.
BucketValue PowerSGDExpansion::join(BucketType type, ArrayRef<Value> parts) {
  if (!parts.front() || parts.size() == 1)
    return cast_if_present<BucketValue>(parts.front());
  return create<ConcatOp>(type, parts);
}

/// How the factors of a bucket lie in it: runs of adjacent ones that belong to
/// the same group, each as the group's number and how many they are.
static SmallVector<std::pair<size_t, int64_t>>
getRuns(ArrayRef<PowerSGDGroup> groups, size_t numFactors) {
  SmallVector<size_t> groupOf(numFactors);
  for (auto [number, group] : llvm::enumerate(groups))
    for (int64_t factor : group.factors)
      groupOf[factor] = number;
  SmallVector<std::pair<size_t, int64_t>> runs;
  for (size_t number : groupOf) {
    if (runs.empty() || runs.back().first != number)
      runs.emplace_back(number, 0);
    ++runs.back().second;
  }
  return runs;
}

/// The types of runs of adjacent members.
static SmallVector<Type> getTypes(BucketType type,
                                  ArrayRef<int64_t> numMembers) {
  SmallVector<Type> types;
  int64_t begin = 0;
  for (int64_t number : numMembers) {
    types.push_back(
        getSubBucket(type, llvm::to_vector(llvm::seq(begin, begin + number))));
    begin += number;
  }
  return types;
}

/// The groups' parts of the factors: where they lie, if a group's are adjacent.
SmallVector<BucketValue>
PowerSGDExpansion::splitFactors(BucketValue factors,
                                ArrayRef<PowerSGDGroup> groups) {
  if (!factors || groups.size() == 1)
    return SmallVector<BucketValue>(groups.size(), factors);
  auto runs = getRuns(groups, factors.getType().getNumMembers());
  auto split =
      SplitOp::create(builder, loc,
                      getTypes(factors.getType(),
                               llvm::to_vector(llvm::make_second_range(runs))),
                      factors);
  SmallVector<SmallVector<Value>> parts(groups.size());
  for (auto [run, part] : llvm::zip(runs, split.getParts()))
    parts[run.first].push_back(part);
  return llvm::map_to_vector(llvm::zip(groups, parts), [&](auto groupAndParts) {
    auto &[group, ofGroup] = groupAndParts;
    return join(getSubBucket(factors.getType(), group.factors), ofGroup);
  });
}

/// What `splitFactors` took apart.
BucketValue PowerSGDExpansion::joinFactors(BucketType type,
                                           ArrayRef<BucketValue> ofGroups,
                                           ArrayRef<PowerSGDGroup> groups) {
  if (groups.size() == 1)
    return ofGroups.front();
  auto runs = getRuns(groups, type.getNumMembers());
  SmallVector<SmallVector<int64_t>> sizes(groups.size());
  for (auto [group, numMembers] : runs)
    sizes[group].push_back(numMembers);
  SmallVector<ValueRange> parts;
  for (auto [ofGroup, ofRuns] : llvm::zip(ofGroups, sizes)) {
    if (ofRuns.size() == 1) {
      parts.push_back(ValueRange(ofGroup));
      continue;
    }
    parts.push_back(SplitOp::create(builder, loc,
                                    getTypes(ofGroup.getType(), ofRuns),
                                    ofGroup)
                        .getParts());
  }
  SmallVector<Value> inOrder;
  for (auto [group, numMembers] : runs) {
    inOrder.push_back(parts[group].front());
    parts[group] = parts[group].drop_front();
  }
  return join(type, inOrder);
}
