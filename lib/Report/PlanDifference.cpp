//===- PlanDifference.cpp - differences between two plans -----------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compares plans. Buckets are matched by name; gradients that moved between
// buckets are listed with their old ones.
//
//===----------------------------------------------------------------------===//

#include "ReportWords.h"
#include "ddphook/Report/Difference.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir::ddp;
using llvm::StringRef;
using llvm::Twine;

/// The most names in a line.
static constexpr size_t kMostListed = 8;

static std::string listNames(const std::vector<std::string> &names) {
  std::string text =
      llvm::join(llvm::ArrayRef(names).take_front(kMostListed), ", ");
  if (names.size() > kMostListed)
    text += " and " + std::to_string(names.size() - kMostListed) + " more";
  return text;
}

namespace {
using CollectiveList = std::vector<const ReportCollective *>;

class PlanComparison {
public:
  PlanComparison(const PlanReport &before, const PlanReport &after)
      : before(nameAll(before)), after(nameAll(after)) {}
  std::vector<std::string> run();

private:
  void add(const Twine &line) { lines.push_back(printable(line.str())); }
  void compareText(StringRef what, StringRef from, StringRef to) {
    if (from != to)
      add(what + ": " + (from.empty() ? "none" : from) + " → " +
          (to.empty() ? "none" : to));
  }
  void compareBytes(StringRef what, int64_t from, int64_t to) {
    if (from != to)
      add(what + ": " + describeChange(from, to));
  }
  /// Compares the descriptions of items with the same name.
  template <typename ListT, typename FnT>
  void compareNamed(StringRef what, const ListT &from, const ListT &to,
                    FnT &&describe) {
    llvm::MapVector<StringRef, std::string> old, young;
    for (const auto &item : from)
      old[item.name] = describe(item);
    for (const auto &item : to)
      young[item.name] = describe(item);
    for (const auto &[name, text] : old)
      compareText((what + name).str(), text, young.lookup(name));
    for (const auto &[name, text] : young)
      if (!old.count(name))
        compareText((what + name).str(), "", text);
  }
  void compareBuckets();
  void compareBucket(const ReportBucket &from, const ReportBucket &to);
  void compareMembers(const ReportBucket &from, const ReportBucket &to);
  void compareGradients();
  void compareCollectives(const Twine &where, const CollectiveList &from,
                          const CollectiveList &to);
  void compareStates();
  void compareMemory();
  /// Lists members of a bucket by the bucket in `buckets` that contains each.
  std::string describeMembers(const std::vector<std::string> &members,
                              const llvm::StringMap<StringRef> &buckets,
                              StringRef preposition);

  /// Names unnamed gradients by their position, as passes do.
  static PlanReport nameAll(PlanReport report) {
    for (ReportBucket &bucket : report.buckets)
      for (auto [i, gradient] : llvm::enumerate(bucket.gradients))
        if (gradient.name.empty())
          gradient.name = bucket.name + "." + std::to_string(i);
    return report;
  }

  const PlanReport before, after;
  std::vector<std::string> lines;
  /// The bucket of each gradient.
  llvm::StringMap<StringRef> bucketsBefore, bucketsAfter;
  llvm::StringMap<CollectiveList> collectivesBefore, collectivesAfter;
};
} // namespace

std::string
PlanComparison::describeMembers(const std::vector<std::string> &members,
                                const llvm::StringMap<StringRef> &buckets,
                                StringRef preposition) {
  llvm::MapVector<StringRef, std::vector<std::string>> byBucket;
  for (const std::string &member : members)
    byBucket[buckets.lookup(member)].push_back(member);
  return llvm::join(
      llvm::map_range(
          byBucket,
          [&](const auto &entry) {
            std::string text = listNames(entry.second);
            if (!entry.first.empty())
              text += (" (" + preposition + " " + entry.first + ")").str();
            return text;
          }),
      ", ");
}

void PlanComparison::compareMembers(const ReportBucket &from,
                                    const ReportBucket &to) {
  llvm::StringMap<char> old, young;
  std::vector<std::string> orderBefore, orderAfter, gone, come;
  for (const ReportGradient &gradient : from.gradients) {
    old[gradient.name];
    orderBefore.push_back(gradient.name);
  }
  for (const ReportGradient &gradient : to.gradients) {
    young[gradient.name];
    orderAfter.push_back(gradient.name);
    if (!old.contains(gradient.name))
      come.push_back(gradient.name);
  }
  for (const ReportGradient &gradient : from.gradients)
    if (!young.contains(gradient.name))
      gone.push_back(gradient.name);
  if (!come.empty())
    add("bucket " + to.name + ": now with " +
        describeMembers(come, bucketsBefore, "from"));
  if (!gone.empty())
    add("bucket " + to.name + ": without " +
        describeMembers(gone, bucketsAfter, "now in"));
  if (come.empty() && gone.empty() && orderBefore != orderAfter)
    add("bucket " + to.name + ": its gradients are in another order");
}

void PlanComparison::compareBucket(const ReportBucket &from,
                                   const ReportBucket &to) {
  compareMembers(from, to);
  std::string bucket = "bucket " + to.name;
  auto describeHook = [](const ReportBucket &of) {
    return of.hook + (of.hookFrom.empty() ? "" : " (from " + of.hookFrom + ")");
  };
  if (from.hook != to.hook)
    compareText(bucket + ": hook", describeHook(from), describeHook(to));
  compareText(bucket, describeReduction(from), describeReduction(to));
  compareBytes(bucket + ": gradients", from.gradientBytes, to.gradientBytes);
  compareBytes(bucket + ": on the wire", from.wireBytes, to.wireBytes);
  compareBytes(bucket + ": states", from.stateBytes, to.stateBytes);
  compareCollectives(bucket, collectivesBefore.lookup(from.name),
                     collectivesAfter.lookup(to.name));
}

void PlanComparison::compareBuckets() {
  llvm::StringMap<const ReportBucket *> old, young;
  for (const ReportBucket &bucket : before.buckets)
    old[bucket.name] = &bucket;
  for (const ReportBucket &bucket : after.buckets)
    young[bucket.name] = &bucket;
  auto getNames = [](const ReportBucket &bucket) {
    std::vector<std::string> names;
    for (const ReportGradient &gradient : bucket.gradients)
      names.push_back(gradient.name);
    return names;
  };
  std::vector<StringRef> orderBefore, orderAfter;
  for (const ReportBucket &bucket : before.buckets)
    if (const ReportBucket *same = young.lookup(bucket.name)) {
      orderBefore.push_back(bucket.name);
      compareBucket(bucket, *same);
    } else {
      add("bucket " + bucket.name + " is gone: " +
          describeMembers(getNames(bucket), bucketsAfter, "now in"));
    }
  for (const ReportBucket &bucket : after.buckets)
    if (old.contains(bucket.name))
      orderAfter.push_back(bucket.name);
    else
      add("bucket " + bucket.name + " is new, with hook " + bucket.hook + ": " +
          describeMembers(getNames(bucket), bucketsBefore, "from"));
  if (orderBefore != orderAfter)
    add("buckets are in another order");
}

void PlanComparison::compareGradients() {
  llvm::StringMap<const ReportGradient *> old;
  std::vector<std::string> gone, come;
  for (const ReportBucket &bucket : before.buckets)
    for (const ReportGradient &gradient : bucket.gradients) {
      old[gradient.name] = &gradient;
      if (!bucketsAfter.contains(gradient.name))
        gone.push_back(gradient.name);
    }
  for (const ReportBucket &bucket : after.buckets)
    for (const ReportGradient &gradient : bucket.gradients)
      if (const ReportGradient *same = old.lookup(gradient.name))
        compareText("gradient " + gradient.name, formatShape(same->shape),
                    formatShape(gradient.shape));
      else
        come.push_back(gradient.name);
  if (!gone.empty())
    add(countNoun(gone.size(), "gradient") + " less: " + listNames(gone));
  if (!come.empty())
    add(countNoun(come.size(), "gradient") + " more: " + listNames(come));
}

void PlanComparison::compareCollectives(const Twine &where,
                                        const CollectiveList &from,
                                        const CollectiveList &to) {
  if (from.size() != to.size()) {
    add(where + ": " + countNoun(from.size(), "collective") + " → " +
        std::to_string(to.size()));
    return;
  }
  for (auto [a, b] : llvm::zip(from, to)) {
    std::string what = (where + ": collective " + Twine(b->number)).str();
    auto describe = [](const ReportCollective &collective,
                       const ReportCollective &other) {
      ReportCollective comparable = collective;
      // Older reports do not contain it.
      if (collective.kind == other.kind && !other.reduction)
        comparable.reduction.reset();
      return describeCollective(comparable) + " over @" + collective.group;
    };
    compareText(what, describe(*a, *b), describe(*b, *a));
    if (!a->function.empty() && !b->function.empty())
      compareText(what, describeOverlap(*a), describeOverlap(*b));
  }
}

void PlanComparison::compareStates() {
  auto describe = [](const ReportState &state) {
    return state.dtype + ", " + std::to_string(state.bytes) + " B, " +
           state.placement;
  };
  compareNamed("state ", before.states, after.states, describe);
}

void PlanComparison::compareMemory() {
  compareText("memory", before.memory, after.memory);
  compareBytes("arena", before.arenaBytes, after.arenaBytes);
  compareBytes("state arena", before.stateArenaBytes, after.stateArenaBytes);
  if (!before.hasProgram || !after.hasProgram)
    return;
  if (before.copies.size() != after.copies.size())
    compareText("copies of memory", std::to_string(before.copies.size()),
                std::to_string(after.copies.size()));
  compareBytes("copied", before.getCopiedBytes(), after.getCopiedBytes());
}

std::vector<std::string> PlanComparison::run() {
  for (const ReportBucket &bucket : before.buckets)
    for (const ReportGradient &gradient : bucket.gradients)
      bucketsBefore[gradient.name] = bucket.name;
  for (const ReportBucket &bucket : after.buckets)
    for (const ReportGradient &gradient : bucket.gradients)
      bucketsAfter[gradient.name] = bucket.name;
  for (const ReportCollective &collective : before.collectives)
    collectivesBefore[collective.bucket].push_back(&collective);
  for (const ReportCollective &collective : after.collectives)
    collectivesAfter[collective.bucket].push_back(&collective);

  compareText("entry points", llvm::join(before.entries, ", "),
              llvm::join(after.entries, ", "));
  compareNamed("process group @", before.groups, after.groups, describeGroup);
  compareBytes("gradients", before.getGradientBytes(),
               after.getGradientBytes());
  compareBytes("on the wire", before.getWireBytes(), after.getWireBytes());
  compareGradients();
  compareBuckets();
  compareCollectives("in no bucket", collectivesBefore.lookup(""),
                     collectivesAfter.lookup(""));
  compareStates();
  compareMemory();
  return std::move(lines);
}

std::vector<std::string> mlir::ddp::comparePlans(const PlanReport &before,
                                                 const PlanReport &after) {
  return PlanComparison(before, after).run();
}
