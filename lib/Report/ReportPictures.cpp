//===- ReportPictures.cpp - the pictures of a report's page ---------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See ReportPictures.h. A picture has a limited number of bars, whatever the
// program; the tables are complete.
//
//===----------------------------------------------------------------------===//

#include "ReportPictures.h"

#include "Markup.h"
#include "PageStyle.h"
#include "ReportWords.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <map>

using namespace mlir::ddp;
using llvm::StringRef;

static constexpr size_t kMostLanes = 12;
static constexpr size_t kMostBars = 2000;
static constexpr size_t kMostRanks = 8;

/// Writes how much a picture leaves out.
static void writeLeftOut(llvm::raw_ostream &os, size_t leftOut,
                         StringRef what) {
  if (leftOut != 0)
    os << "<p class=\"dim\">Not drawn: "
       << countNoun(static_cast<int64_t>(leftOut), what) << ".</p>\n";
}

//===----------------------------------------------------------------------===//
// Colours
//===----------------------------------------------------------------------===//

HookColours::HookColours(const PlanReport &report) {
  for (const ReportBucket &bucket : report.buckets) {
    numbers.insert({getHookName(bucket.hook), numbers.size()});
    hooks[bucket.name] = getHookName(bucket.hook);
  }
}

std::string HookColours::getStyle(StringRef hook) const {
  auto found = numbers.find(getHookName(hook));
  return found == numbers.end()
             ? "n"
             : "h" + std::to_string(found->second % kNumColours);
}

std::string HookColours::getBucketStyle(StringRef bucket) const {
  auto found = hooks.find(bucket);
  return found == hooks.end() ? "n" : getStyle(found->second);
}

void HookColours::writeLegend(llvm::raw_ostream &os) const {
  os << "<ul class=\"legend\">";
  for (const auto &[hook, number] : numbers)
    os << "<li class=\"h" << number % kNumColours << "\"><i></i>"
       << escape(hook) << "</li>";
  os << "<li><i class=\"pale\"></i>gradients</li><li><i class=\"full\"></i>"
        "on the wire</li>"
        "</ul>\n";
}

//===----------------------------------------------------------------------===//
// As compiled
//===----------------------------------------------------------------------===//

static void writeFunction(llvm::raw_ostream &os, const PlanReport &report,
                          const ReportFunction &function,
                          const HookColours &colours) {
  auto size = static_cast<double>(std::max<int64_t>(function.numOperations, 1));
  std::vector<LaneBar> step = {
      {0, 1, "s", "", countNoun(function.numOperations, "operation")}};
  std::vector<LaneBar> flying;
  size_t leftOut = 0;
  for (const ReportCollective &collective : report.collectives) {
    if (collective.function != function.name)
      continue;
    if (step.size() + flying.size() > kMostBars) {
      ++leftOut;
      continue;
    }
    StringRef label = collective.bucket.empty() ? StringRef(collective.kind)
                                                : StringRef(collective.bucket);
    bool isInFlight = collective.wait > collective.start;
    LaneBar bar{static_cast<double>(collective.start) / size,
                static_cast<double>(isInFlight ? collective.wait
                                               : collective.start + 1) /
                    size,
                colours.getBucketStyle(collective.bucket), label.str(),
                "No. " + std::to_string(collective.number) + ", " +
                    label.str() + ": " + describeCollective(collective) + "; " +
                    describeOverlap(collective)};
    bar.end = std::min(bar.end, 1.0);
    (isInFlight ? flying : step).push_back(std::move(bar));
  }
  writeLane(os, function.name, step);
  size_t notPacked = 0;
  for (const auto &lane : packLanes(std::move(flying), kMostLanes, &notPacked))
    writeLane(os, "in flight", lane);
  writeLeftOut(os, leftOut + notPacked, "collective");
}

void mlir::ddp::writeSchedule(llvm::raw_ostream &os, const PlanReport &report,
                              const HookColours &colours) {
  os << "<div class=\"card\">\n";
  for (const ReportFunction &function : report.functions)
    if (llvm::any_of(report.collectives, [&](const ReportCollective &c) {
          return c.function == function.name;
        }))
      writeFunction(os, report, function, colours);
  os << "</div>\n";
}

//===----------------------------------------------------------------------===//
// As measured
//===----------------------------------------------------------------------===//

/// Marks are round numbers, which %g prints without trailing zeros.
static std::string formatAxisTime(double microseconds) {
  if (microseconds < 1000)
    return llvm::formatv("{0} µs", llvm::format("%g", microseconds));
  return llvm::formatv("{0} ms", llvm::format("%g", microseconds / 1e3));
}

void mlir::ddp::writeTimeLine(llvm::raw_ostream &os,
                              const TraceSummary &measured,
                              const HookColours &colours) {
  double end = 0;
  std::map<int64_t, std::map<int64_t, std::vector<const TraceEvent *>>> ranks;
  for (const TraceEvent &event : measured.picture) {
    end = std::max(end, event.getEnd());
    ranks[event.rank][event.thread].push_back(&event);
  }
  if (ranks.empty())
    return;
  os << "<h3>One step, of median time</h3><ul class=\"legend\">"
        "<li><i class=\"s\"></i>step</li><li><i></i>kernel of the runtime</li>"
        "<li class=\"h0\"><i></i>collective, in the colour of its "
        "hook</li><li><i class=\"x\"></i>waiting</li></ul>\n"
        "<div class=\"card\">\n";
  size_t leftOut = 0, numRanks = 0;
  for (const auto &[rank, threads] : ranks) {
    if (numRanks++ == kMostRanks)
      break;
    for (const auto &[thread, events] : threads) {
      std::vector<LaneBar> bars;
      double collectiveEnd = 0;
      for (const TraceEvent *event : events) {
        if (bars.size() == kMostBars) {
          ++leftOut;
          continue;
        }
        bool isCollective = event->kind == TraceEvent::Collective;
        if (isCollective)
          collectiveEnd = event->getEnd();
        // Hatched bars are illegible.
        bool hasLabel = isCollective && event->waiting < event->duration / 2;
        std::string style =
            isCollective ? colours.getBucketStyle(event->bucket) + " r"
            : event->kind == TraceEvent::Kernel ? "n"
            : event->kind == TraceEvent::Step   ? "s"
            : event->getEnd() > collectiveEnd   ? "x"
                                                : "w"; // within a collective
        bars.push_back({std::max(event->begin, 0.0) / end,
                        event->getEnd() / end, style,
                        hasLabel ? event->bucket : "",
                        event->name + ": " + formatTime(event->duration)});
      }
      writeLane(os,
                "rank " + std::to_string(rank) +
                    (thread == 0 ? ", step" : ", wire"),
                bars);
    }
  }
  writeAxis(os, end, formatAxisTime);
  os << "</div>\n";
  writeLeftOut(os, leftOut, "event");
  writeLeftOut(os, ranks.size() - std::min(ranks.size(), kMostRanks), "rank");
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

static std::string formatAxisBytes(double bytes) {
  return formatBytes(static_cast<int64_t>(bytes));
}

void mlir::ddp::writeArena(llvm::raw_ostream &os, const PlanReport &report,
                           const HookColours &colours) {
  if (report.buffers.empty() || report.arenaBytes == 0)
    return;
  // Keep the largest ones if there are too many.
  std::vector<const ReportBuffer *> buffers;
  for (const ReportBuffer &buffer : report.buffers)
    buffers.push_back(&buffer);
  llvm::stable_sort(buffers, [](const ReportBuffer *a, const ReportBuffer *b) {
    return a->bytes > b->bytes;
  });
  size_t leftOut = buffers.size() - std::min(buffers.size(), kMostBars);
  buffers.resize(std::min(buffers.size(), kMostBars));
  auto size = static_cast<double>(report.arenaBytes);
  std::vector<LaneBar> bars;
  for (const ReportBuffer *buffer : buffers) {
    const std::string &what =
        buffer->bucket.empty() ? buffer->type : buffer->bucket;
    std::string title = what + ", " + formatBytes(buffer->bytes) + " at byte " +
                        std::to_string(buffer->offset) + ", in '" +
                        buffer->function + "'";
    if (!buffer->source.empty())
      title += ", " + buffer->source;
    bars.push_back({static_cast<double>(buffer->offset) / size,
                    (static_cast<double>(buffer->offset) +
                     static_cast<double>(buffer->bytes)) /
                        size,
                    colours.getBucketStyle(buffer->bucket), what, title});
  }
  os << "<h3>Arena, " << formatBytes(report.arenaBytes)
     << "</h3><div class=\"card\">\n";
  size_t notPacked = 0;
  bool isFirst = true;
  for (const auto &lane : packLanes(std::move(bars), kMostLanes, &notPacked)) {
    writeLane(os, isFirst ? "buffers" : "", lane);
    isFirst = false;
  }
  writeAxis(os, size, formatAxisBytes);
  os << "</div>\n";
  writeLeftOut(os, leftOut + notPacked, "buffer");
}

void mlir::ddp::writeStateArena(llvm::raw_ostream &os,
                                const PlanReport &report) {
  if (report.states.empty() || report.stateArenaBytes == 0)
    return;
  auto size = static_cast<double>(report.stateArenaBytes);
  std::vector<LaneBar> bars;
  size_t leftOut = 0;
  for (const ReportState &state : report.states) {
    if (bars.size() == kMostBars) {
      ++leftOut;
      continue;
    }
    bars.push_back({static_cast<double>(state.offset) / size,
                    (static_cast<double>(state.offset) +
                     static_cast<double>(state.bytes)) /
                        size,
                    "n", state.name,
                    state.name + ", " + formatBytes(state.bytes) + " at byte " +
                        std::to_string(state.offset)});
  }
  os << "<h3>State arena, " << formatBytes(report.stateArenaBytes)
     << "</h3><div class=\"card\">\n";
  writeLane(os, "states", bars);
  writeAxis(os, size, formatAxisBytes);
  os << "</div>\n";
  writeLeftOut(os, leftOut, "state");
}
