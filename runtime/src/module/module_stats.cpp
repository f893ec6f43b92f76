// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The calls of a step that inspect values or count, and change no array. As in
// module.cpp, failures are kept until the step ends.

#include "module/module.h"

#include "base/log.h"
#include "base/write_signals.h"
#include "job/context.h"
#include "module/device_call.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <numeric>
#include <string_view>

using namespace ddphook;

bool ddphook_module::isFinite(const void *in, int64_t count, int32_t dtype) {
  int32_t result = 1; // devices are not called for arrays without elements
  callDevice(*this, "ddphook_rt_is_finite", &ddphook_backend_t::is_finite,
             role::In{in, "in"}, role::Count{count, "count"},
             role::ElementType{dtype, "dtype"}, &result);
  nonFinite += result == 0;
  return stepFailure.isOk() && result != 0;
}

void ddphook_module::inspectOperand(int32_t number, const void *in,
                                    int64_t step) {
  if (context.observed().findsNonFinite())
    testOperand(number, in);
  if (!isErrorMeasured)
    return;
  const ModuleGroup &group = groups[plan.collectives[number].group];
  compressionError.seeCollective(number, in, group.size(), group.rank(), step);
}

/// Tests reductions only: other collectives may carry data other than numbers.
void ddphook_module::testOperand(int32_t number, const void *in) {
  const PlanCollective &collective = plan.collectives[number];
  if (collective.count == 0 || !isReduction(collective.collectiveKind()))
    return;
  // Between nodes, other ranks' parts of an operand have no meaning.
  if (collective.assignment &&
      plan.processGroups[collective.group].isHierarchical)
    return;
  DefaultFloatingPoint environment;
  int32_t isFinite = 1;
  // A device that cannot answer, for example during a capture, fails no step.
  context
      .call(&ddphook_backend_t::is_finite, in, collective.count,
            collective.dtype, &isFinite)
      .ignore();
  const uint64_t found = isFinite == 0;
  nonFinite += found;
  nonFiniteOperands[number] += found;
}

void ddphook_module::measureProduct(int32_t bucket, int32_t list,
                                    const void *matrix, const void *p,
                                    const void *q) {
  const char *call = "ddphook_rt_measure_product";
  const PlanBucket *const found = findBucket(call, bucket);
  if (found &&
      checkCall(*this, call, role::Matrices{list, "list"},
                role::In{matrix, "matrix"}, role::In{p, "p"},
                role::In{q, "q"}) &&
      isErrorMeasured)
    compressionError.seeProduct(*found, plan.matrixLists[list],
                                matricesOf(list, DDPHOOK_MATMUL_M), matrix, p,
                                q);
}

void ddphook_module::measureEntries(int32_t bucket, int64_t keep,
                                    const void *entries, const void *rest,
                                    int64_t count) {
  const char *call = "ddphook_rt_measure_entries";
  const PlanBucket *const found = findBucket(call, bucket);
  if (found &&
      checkCall(*this, call, role::Count{keep, "keep"},
                role::In{entries, "entries"}) &&
      checkCall(*this, call, role::Count{count, "count"},
                role::In{rest, "rest"}) &&
      isErrorMeasured)
    compressionError.seeEntries(*found, keep, entries, rest, count);
}

void ddphook_module::prepareCounts() {
  stats.arena_bytes = static_cast<uint64_t>(plan.arena.bytes);
  stats.state_bytes = static_cast<uint64_t>(plan.stateArena.bytes);
  bucketCounts.resize(plan.buckets.size());
  nonFiniteOperands.resize(plan.collectives.size());
  std::map<std::string_view, int32_t> numbers;
  for (const PlanBucket &bucket : plan.buckets)
    numbers.emplace(bucket.name, static_cast<int32_t>(numbers.size()));
  for (const PlanCollective &collective : plan.collectives) {
    auto found = numbers.find(collective.bucket);
    collectiveBuckets.push_back(found == numbers.end() ? -1 : found->second);
  }
}

/// Returns "all_reduce b0", or the collective's number if it has no bucket.
static std::string nameOf(const PlanCollective &collective, size_t number,
                          CollectiveKind kind) {
  return std::string(collectiveName(kind)) + " " +
         (collective.bucket.empty() ? "#" + std::to_string(number)
                                    : collective.bucket);
}

void ddphook_module::nameEvents() {
  trace::Recorder &recorder = context.recorder();
  for (const PlanEntry &entry : plan.entries)
    stepNames.push_back(
        recorder.addName(trace::Name(trace::Category::Step, entry.name)));
  const std::string label =
      concat("module ", moduleNumber,
             plan.entries.empty() ? "" : " (@" + plan.entries[0].name + ")");
  startedCollectives.reserve(plan.collectives.size());
  for (size_t i = 0; i < plan.collectives.size(); ++i) {
    const PlanCollective &collective = plan.collectives[i];
    const ModuleGroup &group = groups[collective.group];
    trace::CollectiveNames &names = collectiveNames.emplace_back();
    names.kind = names.last = collective.collectiveKind();
    for (const CollectiveStage &stage : group.stagesOf(i, collective)) {
      trace::Name name;
      name.category = trace::Category::Collective;
      name.text = nameOf(collective, i, stage.kind);
      name.collective = static_cast<int32_t>(i);
      name.bucket = collective.bucket;
      name.group = plan.processGroups[collective.group].name;
      name.wireBytes = stage.wireBytes;
      const uint32_t number = recorder.addName(name);
      names.byKind[static_cast<size_t>(stage.kind)] = number;
      names.last = stage.kind;
      if (number != trace::otherName)
        recorder.setPlace(number, {group.size() < context.worldSize()
                                       ? group.ranks()
                                       : std::vector<int>(),
                                   label});
    }
    waitNames.push_back(recorder.addName(trace::Name(
        trace::Category::Wait, "wait " + nameOf(collective, i, names.kind))));
  }
}

uint32_t ddphook_module::nameOfWait(int64_t ticket) const {
  for (auto [started, collective] : startedCollectives)
    if (started == ticket)
      return waitNames[collective];
  return trace::waitName;
}

trace::MetricsSample ddphook_module::sampleMetrics() const {
  trace::MetricsSample sample = {moduleNumber, stats, stepTime,
                                 nonFinite,    {},    {}};
  std::map<std::string, trace::BucketSample> buckets;
  for (size_t i = 0; i < plan.collectives.size(); ++i) {
    const std::string &name = plan.collectives[i].bucket;
    const trace::CollectiveTimes &times = collectiveNames[i].times;
    trace::BucketSample &bucket = buckets[name];
    bucket.bucket = name;
    bucket.collectives += times.count;
    bucket.total += times.total;
    bucket.waited += times.waited;
    if (context.observed().findsNonFinite())
      bucket.nonFinite = bucket.nonFinite.value_or(0) + nonFiniteOperands[i];
  }
  if (measuresErrors()) {
    for (auto [name, error] : compressionError.relativeErrors())
      buckets[name].relativeError = error;
    sampleErrors(&sample.errors);
  }
  for (auto &[name, bucket] : buckets)
    sample.buckets.push_back(std::move(bucket));
  return sample;
}

void ddphook_module::sampleErrors(
    std::vector<trace::ErrorSample> *errors) const {
  for (size_t i = 0; i < plan.states.size(); ++i) {
    const PlanState &state = plan.states[i];
    if (!state.isError())
      continue;
    const Dtype dtype = *floatDtype(state.dtype);
    double squares = 0;
    // A device that cannot answer, for example during a capture, fails no step.
    if (state.bytes > 0 &&
        !context
             .call(&ddphook_backend_t::sum_squares, states.get(i),
                   state.bytes / dtypeSize(dtype), static_cast<int32_t>(dtype),
                   &squares)
             .isOk())
      return;
    errors->push_back({state.name, std::sqrt(squares)});
  }
}

void ddphook_module::countCollective(int32_t number) {
  const PlanCollective &collective = plan.collectives[number];
  const int64_t ranks = groups[collective.group].size();
  const auto memoryBytes = static_cast<uint64_t>(collective.memoryBytes(ranks));
  ++stats.collectives;
  stats.wire_bytes += static_cast<uint64_t>(collective.wireBytes(ranks));
  stats.collective_bytes += memoryBytes;
  const int32_t bucket = collectiveBuckets[number];
  hasReduced = true;
  if (bucket < 0) {
    stats.uncompressed_bytes += memoryBytes;
    return;
  }
  BucketCounts &counts = bucketCounts[bucket];
  counts.sent += collective.contributed(ranks);
  counts.isGathered |= collective.is(CollectiveKind::AllGather);
}

static int64_t numElements(const PlanBucket &bucket) {
  int64_t sum = 0;
  for (const Shape &shape : bucket.shapes)
    sum += std::accumulate(shape.begin(), shape.end(), int64_t{1},
                           std::multiplies<>());
  return sum;
}

/// Counts the buckets at the end of a step. Only then is it known which of a
/// bucket's collectives sent the gradients themselves: all except those that
/// ddphook_rt_count_compression() has announced, in any order.
void ddphook_module::countBuckets() {
  if (!hasReduced)
    return;
  hasReduced = false;
  for (size_t i = 0; i < bucketCounts.size(); ++i) {
    BucketCounts &counts = bucketCounts[i];
    const PlanBucket &bucket = plan.buckets[i];
    const int64_t elements =
        counts.isGathered
            ? numElements(bucket)
            : counts.before + std::max<int64_t>(0, counts.sent - counts.after);
    stats.uncompressed_bytes += elements * dtypeSize(bucket.dtype);
    counts = {};
  }
}

const PlanBucket *ddphook_module::findBucket(const char *call, int32_t bucket) {
  if (!canRun(call))
    return nullptr;
  if (bucket >= 0 && static_cast<size_t>(bucket) < plan.buckets.size())
    return &plan.buckets[bucket];
  failStep(invalid("%s: expected one of %zu buckets, but got %d", call,
                   plan.buckets.size(), bucket));
  return nullptr;
}

void ddphook_module::countCompression(int32_t bucket, int64_t before,
                                      int64_t after, int64_t iteration,
                                      int64_t frequency) {
  const char *call = "ddphook_rt_count_compression";
  if (!findBucket(call, bucket))
    return;
  if (before < 0 || after < 0 || frequency < 1)
    return failStep(invalid("%s: expected counts of at least 0 and a frequency "
                            "of at least 1",
                            call));
  stats.elements_before_compression += static_cast<uint64_t>(before);
  stats.elements_after_compression += static_cast<uint64_t>(after);
  bucketCounts[bucket].before += before;
  bucketCounts[bucket].after += after;
  hasReduced = true;
  if (!isLogged(LogLevel::Info) || context.rank() != 0)
    return;
  int64_t first = firstCompressed.emplace(bucket, iteration).first->second;
  if ((iteration - first) % frequency != 0)
    return;
  const NoWriteSignals noSignals;
  std::fprintf(stderr,
               "ddphook: bucket %s, iteration %" PRId64 ": %" PRId64
               " elements sent as %" PRId64 " (rate %.2f)\n",
               plan.buckets[bucket].name.c_str(), iteration, before, after,
               after > 0 ? static_cast<double>(before) / after : 0.0);
}
