//===- PlanReport.h - what a compiled step communicates ---------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A readable plan: its buckets with their gradients, the cost of each, and
// facts beyond the plan (PlanReporter.h collects them). Plain data, read from a
// plan's text or from a report's own JSON; ReportWriter.h turns it into a page,
// text and JSON. docs/reports.md is the guide.
//
// Sizes are in bytes, for one rank and one step. A `source` is
// "FILE:LINE:COLUMN", a name that a front end has given instead, or empty if it
// is unknown.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_REPORT_PLANREPORT_H
#define DDPHOOK_REPORT_PLANREPORT_H

#include "ddphook/Report/StepTrace.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mlir::ddp {

/// A gradient of a bucket.
struct ReportGradient {
  /// Empty if the plan names no gradients.
  std::string name;
  std::vector<int64_t> shape;
  int64_t bytes = 0;
  std::string source;
};

struct ReportBucket {
  std::string name, group, reduction, dtype;
  /// The elements' format on the wire: "f32", or "i4 in blocks of 128".
  std::string wire;
  std::string hook;
  /// The source of the hook, such as "function 'step'"; empty if unknown.
  std::string hookFrom;
  int64_t gradientBytes = 0, wireBytes = 0, stateBytes = 0;
  std::string source;
  std::vector<ReportGradient> gradients;
};

/// Operations of a kind between a collective's start and its wait.
struct ReportWork {
  std::string what;
  int64_t count = 0;
};

struct ReportCollective {
  /// Its index in the plan.
  int64_t number = 0;
  std::string kind;
  /// "mean" or "sum" for a reduce-scatter without a bucket. Not set for others,
  /// or in reports that are older than this field.
  std::optional<std::string> reduction;
  /// Empty if it has no bucket.
  std::string bucket;
  std::string group;
  int64_t count = 0;
  std::string dtype, wire;
  /// The plan's optional fields that are set: ", name 3, other 1".
  std::optional<std::string> others;
  /// The function that runs it; empty if the code is unknown.
  std::string function;
  std::string source;
  /// The control flow around it, such as "for, if"; empty if it always runs.
  std::string within;
  /// Positions among the operations of its function: where it starts, and where
  /// the step waits for it. Equal if the step waits at once.
  int64_t start = 0, wait = 0;
  std::vector<ReportWork> beside;
};

struct ReportFunction {
  std::string name;
  /// The number of operations that `start` and `wait` refer to.
  int64_t numOperations = 0;
};

struct ReportState {
  std::string name, dtype, role, placement;
  int64_t offset = 0, bytes = 0;
};

/// A buffer of the arena. Buffers that are never alive together share bytes.
struct ReportBuffer {
  std::string function;
  int64_t offset = 0, bytes = 0;
  std::string type;
  /// The bucket that it holds; empty for other buffers.
  std::string bucket;
  std::string source;
};

/// A copy of memory that is left in the step.
struct ReportCopy {
  std::string function;
  int64_t bytes = 0;
  std::string type, source;
};

/// A remark of a pass.
struct ReportRemark {
  std::string pass;
  /// "passed", "missed", "analysis" or "failure".
  std::string kind;
  std::string text;
  /// The bucket that it is about, or empty.
  std::string bucket;
  std::string source;
};

struct ReportGroup {
  std::string name;
  /// 0 for all ranks of the job, or if `ranks` is set.
  int64_t size = 0;
  /// "[[0, 1], [2, 3]]", or empty.
  std::string ranks;
  std::string placement, parent, topology;
};

struct PlanReport {
  /// The file of the module; may be empty.
  std::string module;
  int64_t abi = 0;
  std::string memory;
  std::vector<std::string> entries;
  std::vector<ReportGroup> groups;
  std::vector<ReportBucket> buckets;
  std::vector<ReportCollective> collectives;
  std::vector<ReportState> states;
  int64_t arenaBytes = 0, stateArenaBytes = 0;

  /// True if passes reported buffers, copies and functions. Otherwise, as for a
  /// plan's text, the lists below are empty.
  bool hasProgram = false;
  std::vector<ReportFunction> functions;
  std::vector<ReportBuffer> buffers;
  std::vector<ReportCopy> copies;
  std::vector<ReportRemark> remarks;

  /// The measurements of a run of the module, if there was one.
  std::optional<TraceSummary> measured;

  // Sums, which saturate at INT64_MAX for corrupt plans.
  int64_t getGradientBytes() const;
  int64_t getWireBytes() const;
  int64_t getStateBytes() const;
  int64_t getCopiedBytes() const;
  int64_t getNumGradients() const;
};

/// Reads a plan's text (docs/plan.md). Fails for a plan of another version.
llvm::Expected<PlanReport> readPlan(llvm::StringRef text);

/// Reads the output of writeReportJSON(). Fails for a report of another
/// version.
llvm::Expected<PlanReport> readReport(llvm::StringRef text);

/// Adds the measurements of a run of the plan's module. Fails if the trace
/// contains collectives of another module.
llvm::Error addMeasurements(PlanReport &report, const StepTrace &trace);

/// "12.1 kB", in units of 1000, as is usual for links.
std::string formatBytes(int64_t bytes);

/// "4.00", or "nothing is sent".
std::string formatRatio(int64_t before, int64_t after);

/// "300 × 200", or "scalar".
std::string formatShape(const std::vector<int64_t> &shape);

/// Returns a text with names as one line that is safe for terminals: with
/// control characters in hexadecimal, "\x1b".
std::string printable(llvm::StringRef text);

} // namespace mlir::ddp

#endif // DDPHOOK_REPORT_PLANREPORT_H
