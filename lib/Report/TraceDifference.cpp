//===- TraceDifference.cpp - differences between two runs -----------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compares medians. A collective is slower because its bytes move more slowly,
// or because ranks wait for each other. The remedies differ, so these are shown
// separately.
//
//===----------------------------------------------------------------------===//

#include "ReportWords.h"
#include "ddphook/Report/Difference.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

#include <cmath>
#include <map>

using namespace mlir::ddp;
using llvm::StringRef;

namespace {
/// Two medians of one quantity.
struct Times {
  std::string what;
  double before = 0, after = 0;
};

class TimeWriter {
public:
  TimeWriter(llvm::raw_ostream &os, double tolerance)
      : os(os), tolerance(tolerance) {}

  /// The first one is the whole, followed by its parts.
  void compare(StringRef name, llvm::ArrayRef<Times> times);
  /// Compares the bytes of a collective; -1 is unknown.
  void compareBytes(int64_t before, int64_t after) {
    if (before < 0 || after < 0 || before == after)
      return;
    os << "    on the wire " << describeChange(before, after) << "\n";
    differs = true;
  }
  void addMissing(StringRef what, bool isGone) {
    os << printable(what)
       << (isGone ? ": only in the first run\n" : ": only in the second run\n");
    differs = true;
  }

  bool differs = false;

private:
  llvm::raw_ostream &os;
  double tolerance;
};
} // namespace

/// Returns the change in percent of the first time.
static double getChange(const Times &times) {
  if (times.before == times.after)
    return 0;
  return times.before == 0 ? INFINITY
                           : 100 * (times.after - times.before) / times.before;
}

static void writeTimes(llvm::raw_ostream &os, const Times &times) {
  os << formatTime(times.before) << " → " << formatTime(times.after);
  double change = getChange(times);
  if (std::isfinite(change))
    os << llvm::formatv(" ({0}{1:f1} %)", change < 0 ? "−" : "+",
                        std::abs(change));
}

void TimeWriter::compare(StringRef name, llvm::ArrayRef<Times> times) {
  os << printable(name) << ": ";
  writeTimes(os, times.front());
  double change = getChange(times.front());
  if (std::abs(change) > tolerance) {
    differs = true;
    os << (change > 0 ? ", slower" : ", faster");
  }
  os << "\n";
  for (const Times &part : times.drop_front()) {
    os << "    " << part.what << " ";
    writeTimes(os, part);
    os << "\n";
  }
}

TimeComparison mlir::ddp::compareTimes(const TraceSummary &before,
                                       const TraceSummary &after,
                                       double tolerance) {
  TimeComparison result;
  llvm::raw_string_ostream os(result.text);
  TimeWriter writer(os, tolerance);
  if (before.worldSize != after.worldSize) {
    os << "ranks: " << before.worldSize << " → " << after.worldSize << "\n";
    writer.differs = true;
  }

  std::map<StringRef, const MeasuredStep *> steps;
  for (const MeasuredStep &step : after.steps)
    steps[step.name] = &step;
  for (const MeasuredStep &step : before.steps) {
    std::string name = "step " + step.name;
    auto found = steps.find(step.name);
    if (found == steps.end()) {
      writer.addMissing(name, /*isGone=*/true);
      continue;
    }
    const MeasuredStep &other = *found->second;
    writer.compare(name,
                   {{"", step.total, other.total},
                    {"communicating", step.communicating, other.communicating},
                    {"not hidden", step.exposed, other.exposed}});
    steps.erase(found);
  }
  for (const auto &[name, step] : steps)
    writer.addMissing("step " + name.str(), /*isGone=*/false);

  std::map<std::pair<int64_t, StringRef>, const MeasuredCollective *>
      collectives;
  for (const MeasuredCollective &collective : after.collectives)
    collectives[{collective.number, collective.name}] = &collective;
  for (const MeasuredCollective &collective : before.collectives) {
    auto found = collectives.find({collective.number, collective.name});
    if (found == collectives.end()) {
      writer.addMissing(describeMeasured(collective), /*isGone=*/true);
      continue;
    }
    const MeasuredCollective &other = *found->second;
    writer.compare(describeMeasured(collective),
                   {{"", collective.total, other.total},
                    {"waiting", collective.waiting, other.waiting},
                    {"moving", collective.moving, other.moving},
                    {"not hidden", collective.exposed, other.exposed}});
    writer.compareBytes(collective.wireBytes, other.wireBytes);
    collectives.erase(found);
  }
  for (const auto &[key, collective] : collectives)
    writer.addMissing(describeMeasured(*collective), /*isGone=*/false);
  result.differs = writer.differs;
  return result;
}
