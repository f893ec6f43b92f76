//===- StepTrace.cpp - measurements of steps ------------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads traces of the runtime and takes medians.
//
//===----------------------------------------------------------------------===//

#include "ddphook/Report/StepTrace.h"

#include "ReportFields.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/JSON.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

using namespace mlir::ddp;
using llvm::StringRef;
namespace json = llvm::json;

/// The version of the runtime's schema that this file reads.
static constexpr int64_t kTraceVersion = 1;
/// The limit for a collective: more than any memory, and exact in a double.
static constexpr int64_t kMostBytes = int64_t(1) << 52;

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

static bool isTime(double time) { return time >= 0 && time <= kMostTime; }

/// Reads an event with a duration; returns nothing for others, such as names.
static llvm::Expected<std::optional<TraceEvent>>
readEvent(const json::Object &object) {
  auto kind = llvm::StringSwitch<std::optional<TraceEvent::Kind>>(
                  object.getString("cat").value_or(""))
                  .Case("step", TraceEvent::Step)
                  .Case("kernel", TraceEvent::Kernel)
                  .Case("collective", TraceEvent::Collective)
                  .Case("wait", TraceEvent::Wait)
                  .Default(std::nullopt);
  std::optional<double> begin = object.getNumber("ts"),
                        duration = object.getNumber("dur");
  if (object.getString("ph") != "X" || !kind)
    return std::nullopt;
  std::optional<double> waiting;
  const json::Object *arguments = object.getObject("args");
  if (arguments)
    waiting = arguments->getNumber("wait_us");
  // Ranks' clocks are aligned, so an event may begin before 0.
  if (!begin || !isTime(std::abs(*begin)) || !duration || !isTime(*duration) ||
      (waiting && !isTime(*waiting)))
    return llvm::createStringError(
        "expected events of the trace to have plausible times");
  TraceEvent event;
  event.kind = *kind;
  event.name = object.getString("name").value_or("").str();
  event.rank = object.getInteger("pid").value_or(0);
  event.thread = object.getInteger("tid").value_or(0);
  event.begin = *begin;
  event.duration = *duration;
  // Both are rounded.
  event.waiting = waiting ? std::min(*waiting, *duration) : -1;
  if (arguments) {
    event.collective = arguments->getInteger("collective").value_or(-1);
    event.bucket = arguments->getString("bucket").value_or("").str();
    event.step = arguments->getInteger("step").value_or(-1);
    event.wireBytes = arguments->getInteger("wire_bytes").value_or(-1);
    // Larger numbers are corrupt.
    if (event.wireBytes < 0 || event.wireBytes > kMostBytes)
      event.wireBytes = -1;
    event.isUnfinished = arguments->getBoolean("unfinished").value_or(false);
  }
  return event;
}

/// Adds up the waits within collectives if the trace does not contain the sum.
static void addNestedWaits(std::vector<TraceEvent> &events) {
  TraceEvent *around = nullptr;
  double sum = 0;
  auto close = [&] {
    if (around && around->waiting < 0)
      around->waiting = sum;
    around = nullptr;
    sum = 0;
  };
  for (TraceEvent &event : events) {
    if (around &&
        (event.rank != around->rank || event.thread != around->thread ||
         event.begin >= around->getEnd()))
      close();
    if (event.kind == TraceEvent::Collective) {
      close();
      around = &event;
    } else if (event.kind == TraceEvent::Wait && around) {
      sum += event.duration;
    }
  }
  close();
}

llvm::Expected<StepTrace> mlir::ddp::readTrace(StringRef text) {
  llvm::Expected<json::Value> value = parseJSON(text);
  if (!value)
    return llvm::createStringError(
        "cannot read the trace: " + toString(value.takeError()) +
        "; is it truncated?");
  const json::Object *root = value->getAsObject();
  const json::Array *events = root ? root->getArray("traceEvents") : nullptr;
  const json::Object *ours = root ? root->getObject("ddphook") : nullptr;
  if (!events || !ours)
    return llvm::createStringError(
        "expected a ddphook trace, with 'traceEvents' and 'ddphook'");
  std::optional<int64_t> version = ours->getInteger("version");
  if (version != kTraceVersion)
    return llvm::createStringError(
        "expected a trace of version " + llvm::Twine(kTraceVersion) +
        ", but got " +
        (version ? "version " + std::to_string(*version) : "none"));
  StepTrace trace;
  trace.run = ours->getString("run_id").value_or("").str();
  trace.worldSize = ours->getInteger("world_size").value_or(0);
  if (const json::Array *ranks = ours->getArray("ranks"))
    for (const json::Value &rank : *ranks)
      if (const json::Object *object = rank.getAsObject())
        trace.numLost += object->getInteger("events_lost").value_or(0);
  if (const json::Array *failures = ours->getArray("failures"))
    for (const json::Value &failure : *failures)
      if (const json::Object *object = failure.getAsObject())
        trace.failures.push_back(
            ("rank " + llvm::Twine(object->getInteger("rank").value_or(-1)) +
             " " + object->getString("state").value_or("failed") + ": " +
             object->getString("message").value_or(""))
                .str());
  for (const json::Value &element : *events) {
    const json::Object *object = element.getAsObject();
    if (!object)
      return llvm::createStringError(
          "expected events of the trace to be objects");
    llvm::Expected<std::optional<TraceEvent>> event = readEvent(*object);
    if (!event)
      return event.takeError();
    if (*event)
      trace.events.push_back(std::move(**event));
  }
  llvm::stable_sort(trace.events, [](const TraceEvent &a, const TraceEvent &b) {
    return std::tuple(a.rank, a.thread, a.begin, -a.duration) <
           std::tuple(b.rank, b.thread, b.begin, -b.duration);
  });
  addNestedWaits(trace.events);
  return trace;
}

//===----------------------------------------------------------------------===//
// Medians
//===----------------------------------------------------------------------===//

static double getMedian(llvm::MutableArrayRef<double> values) {
  if (values.empty())
    return 0;
  size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + middle, values.end());
  double upper = values[middle];
  if (values.size() % 2 == 1)
    return upper;
  return (upper + *std::max_element(values.begin(), values.begin() + middle)) /
         2;
}

namespace {
/// Disjoint intervals in ascending order.
class Intervals {
public:
  void add(double begin, double end) {
    if (end > begin)
      all.emplace_back(begin, end);
  }
  /// Must be called once, before getOverlap().
  void merge() {
    llvm::sort(all);
    std::vector<std::pair<double, double>> merged;
    for (auto [begin, end] : all)
      if (!merged.empty() && begin <= merged.back().second)
        merged.back().second = std::max(merged.back().second, end);
      else
        merged.emplace_back(begin, end);
    all = std::move(merged);
  }
  double getOverlap(double begin, double end) const {
    auto it = llvm::partition_point(
        all, [&](const auto &interval) { return interval.second <= begin; });
    double sum = 0;
    for (; it != all.end() && it->first < end; ++it)
      sum += std::min(end, it->second) - std::max(begin, it->first);
    return sum;
  }

private:
  std::vector<std::pair<double, double>> all;
};

/// When a rank communicated.
struct RankTimes {
  /// When collectives ran, and when the thread of steps waited for one.
  Intervals communicating, exposed;
};

/// The sums over all ranks for one run of a step or of a collective.
struct Run {
  int64_t numRanks = 0;
  double total = 0, waiting = 0, communicating = 0, exposed = 0;
  double wireBytes = 0;
};

/// The runs of a step or of a collective.
struct Samples {
  std::string name, bucket;
  /// By step, and the order in the step. A rank may lack the first steps, if
  /// its buffer was full, or the last, if it was killed. If a trace has no step
  /// numbers, only the order counts.
  std::map<std::pair<int64_t, int64_t>, Run> runs;
  std::map<std::pair<int64_t, int64_t>, int64_t> numRuns; // by rank and step

  Run &next(const TraceEvent &event) {
    int64_t number = numRuns[{event.rank, event.step}]++;
    Run &run = runs[{event.step, number}];
    ++run.numRanks;
    return run;
  }
  /// Returns the runs that the most ranks have, usually all ranks.
  std::vector<Run> getWhole() const {
    std::vector<Run> whole;
    for (const auto &[key, run] : runs) {
      if (!whole.empty() && whole.front().numRanks < run.numRanks)
        whole.clear();
      if (whole.empty() || whole.front().numRanks == run.numRanks)
        whole.push_back(run);
    }
    return whole;
  }
  int64_t getNumRuns() const { return getWhole().size(); }
  /// Returns the median of means over ranks. The last rank waits for nobody, so
  /// a median over all ranks would be that of one rank or another.
  template <typename F>
  double getMedian(F get) const {
    std::vector<double> means;
    for (const Run &run : getWhole())
      means.push_back(get(run) / static_cast<double>(run.numRanks));
    return ::getMedian(means);
  }
  double getTotal() const {
    return getMedian([](const Run &run) { return run.total; });
  }
  double getExposed() const {
    return getMedian([](const Run &run) { return run.exposed; });
  }
};
} // namespace

static std::map<int64_t, RankTimes> getRankTimes(const StepTrace &trace) {
  std::map<int64_t, RankTimes> ranks;
  for (const TraceEvent &event : trace.events) {
    RankTimes &times = ranks[event.rank];
    bool isCollective = event.kind == TraceEvent::Collective;
    if (isCollective)
      times.communicating.add(event.begin, event.getEnd());
    if (event.thread == 0 && (isCollective || event.kind == TraceEvent::Wait))
      times.exposed.add(event.begin, event.getEnd());
  }
  for (auto &[rank, times] : ranks) {
    times.communicating.merge();
    times.exposed.merge();
  }
  return ranks;
}

/// Returns the step with the median time on the first rank, on all ranks.
static std::vector<TraceEvent> takePicture(const StepTrace &trace) {
  std::vector<const TraceEvent *> steps;
  for (const TraceEvent &event : trace.events)
    if (event.kind == TraceEvent::Step && !event.isUnfinished &&
        event.rank == trace.events.front().rank)
      steps.push_back(&event);
  if (steps.empty())
    return {};
  // If several have that time, take the first.
  std::vector<const TraceEvent *> byTime = steps;
  llvm::stable_sort(byTime, [](const TraceEvent *a, const TraceEvent *b) {
    return a->duration < b->duration;
  });
  const TraceEvent *chosen = byTime[(byTime.size() - 1) / 2];
  int64_t place = llvm::find(steps, chosen) - steps.begin();

  std::vector<TraceEvent> picture;
  std::map<int64_t, int64_t> numSteps;
  std::map<int64_t, const TraceEvent *> onRank;
  for (const TraceEvent &event : trace.events)
    if (event.kind == TraceEvent::Step && !event.isUnfinished) {
      int64_t number = numSteps[event.rank]++;
      if (chosen->step >= 0 && event.step >= 0 ? event.step == chosen->step
                                               : number == place)
        onRank.try_emplace(event.rank, &event);
    }
  double origin = chosen->begin;
  for (auto [rank, step] : onRank)
    origin = std::min(origin, step->begin);
  for (const TraceEvent &event : trace.events) {
    auto it = onRank.find(event.rank);
    if (it == onRank.end() || event.begin >= it->second->getEnd() ||
        event.getEnd() <= it->second->begin)
      continue;
    picture.push_back(event);
    picture.back().begin -= origin;
  }
  return picture;
}

TraceSummary mlir::ddp::summarize(const StepTrace &trace) {
  TraceSummary summary;
  summary.run = trace.run;
  summary.worldSize = trace.worldSize;
  summary.numLost = trace.numLost;
  summary.failures = trace.failures;
  std::map<int64_t, RankTimes> ranks = getRankTimes(trace);
  std::map<std::string, Samples> steps;
  std::map<std::pair<int64_t, std::string>, Samples> collectives;
  for (const TraceEvent &event : trace.events) {
    if (event.isUnfinished)
      continue;
    const RankTimes &times = ranks[event.rank];
    double exposed = times.exposed.getOverlap(event.begin, event.getEnd());
    if (event.kind == TraceEvent::Step) {
      Samples &samples = steps[event.name];
      Run &run = samples.next(event);
      run.total += event.duration;
      run.communicating +=
          times.communicating.getOverlap(event.begin, event.getEnd());
      run.exposed += exposed;
    } else if (event.kind == TraceEvent::Collective) {
      // Numbers are those of the plan; without them, use names.
      Samples &samples = collectives[{event.collective,
                                      event.collective < 0 ? event.name : ""}];
      samples.name = event.name;
      samples.bucket = event.bucket;
      Run &run = samples.next(event);
      run.total += event.duration;
      run.waiting += event.waiting;
      run.wireBytes += static_cast<double>(event.wireBytes);
      run.exposed += exposed;
    }
  }
  for (auto &[name, samples] : steps)
    summary.steps.push_back(
        {name, samples.getNumRuns(), samples.getTotal(),
         samples.getMedian([](const Run &run) { return run.communicating; }),
         samples.getExposed()});
  for (auto &[key, samples] : collectives)
    summary.collectives.push_back(
        {key.first, samples.name, samples.bucket, samples.getNumRuns(),
         samples.getTotal(),
         samples.getMedian([](const Run &run) { return run.waiting; }),
         samples.getMedian(
             [](const Run &run) { return run.total - run.waiting; }),
         samples.getExposed(),
         std::llround(
             samples.getMedian([](const Run &run) { return run.wireBytes; }))});
  summary.picture = takePicture(trace);
  return summary;
}
