//===- PlanReport.h - what a compiled step communicates ---------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A plan for people: its buckets with their gradients, what each one costs, and
// what passes know beyond the plan (PlanReporter.h collects that). Plain data,
// read from a plan's text or from a report's own JSON; ReportWriter.h turns it
// into a page, text and JSON. docs/reports.md is the guide.
//
// Sizes are in bytes, of one rank and one step. A `source` is
// "FILE:LINE:COLUMN", or a name that a front end has given in place of it, or
// empty where nothing is known.
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
  /// Empty where the plan names no gradients.
  std::string name;
  std::vector<int64_t> shape;
  int64_t bytes = 0;
  std::string source;
};

struct ReportBucket {
  std::string name, group, reduction, dtype;
  /// How elements travel: "f32", or "i4 in blocks of 128".
  std::string wire;
  std::string hook;
  /// Who decided on the hook: "function 'step'"; empty where nobody knows.
  std::string hookFrom;
  int64_t gradientBytes = 0, wireBytes = 0, stateBytes = 0;
  std::string source;
  std::vector<ReportGradient> gradients;
};

/// What runs between a collective's start and its wait: operations of a kind.
struct ReportWork {
  std::string what;
  int64_t count = 0;
};

struct ReportCollective {
  /// Its place in the plan.
  int64_t number = 0;
  std::string kind;
  /// "mean" or "sum" of a reduce-scatter in no bucket. Nothing for others, and
  /// in reports that were written before there was this field.
  std::optional<std::string> reduction;
  /// Empty where it belongs to no bucket.
  std::string bucket;
  std::string group;
  int64_t count = 0;
  std::string dtype, wire;
  /// The function that runs it; empty where the code is not known.
  std::string function;
  std::string source;
  /// "" always, or "if" and "for" around it: "for, if".
  std::string within;
  /// Places among the operations of its function: where it starts, and where
  /// the step waits for it. Equal where the step waits at once.
  int64_t start = 0, wait = 0;
  std::vector<ReportWork> beside;
};

struct ReportFunction {
  std::string name;
  /// The places that `start` and `wait` of its collectives count.
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
  /// The bucket that it is; empty for other buffers.
  std::string bucket;
  std::string source;
};

/// A copy of memory that is left in the step.
struct ReportCopy {
  std::string function;
  int64_t bytes = 0;
  std::string type, source;
};

/// What a pass said of its work.
struct ReportRemark {
  std::string pass;
  /// "passed", "missed", "analysis" or "failure".
  std::string kind;
  std::string text;
  /// The bucket that it is about; empty where it is about something else.
  std::string bucket;
  std::string source;
};

struct ReportGroup {
  std::string name;
  /// 0: all ranks of the job, or what `ranks` says.
  int64_t size = 0;
  /// "[[0, 1], [2, 3]]", or empty.
  std::string ranks;
  std::string placement, parent, topology;
};

struct PlanReport {
  /// The file that the module was in; may be empty.
  std::string module;
  int64_t abi = 0;
  std::string memory;
  std::vector<std::string> entries;
  std::vector<ReportGroup> groups;
  std::vector<ReportBucket> buckets;
  std::vector<ReportCollective> collectives;
  std::vector<ReportState> states;
  int64_t arenaBytes = 0, stateArenaBytes = 0;

  /// Whether passes told of buffers, copies and functions. The lists below are
  /// empty where not, as for a plan's text.
  bool hasProgram = false;
  std::vector<ReportFunction> functions;
  std::vector<ReportBuffer> buffers;
  std::vector<ReportCopy> copies;
  std::vector<ReportRemark> remarks;

  /// What a run of the module took, if it was measured.
  std::optional<TraceSummary> measured;

  // Sums that are at most INT64_MAX, whatever a damaged plan says.
  int64_t getGradientBytes() const;
  int64_t getWireBytes() const;
  int64_t getStateBytes() const;
  int64_t getCopiedBytes() const;
  int64_t getNumGradients() const;
};

/// Reads a plan's text (docs/plan.md). Fails for a plan of another version.
llvm::Expected<PlanReport> readPlan(llvm::StringRef text);

/// Reads what writeReportJSON() has written. Fails for a report of another
/// version.
llvm::Expected<PlanReport> readReport(llvm::StringRef text);

/// Adds what a run of the plan's module took. Fails if the trace has
/// collectives of another module.
llvm::Error addMeasurements(PlanReport &report, const StepTrace &trace);

/// "12.1 kB", in units of 1000 as links are measured in.
std::string formatBytes(int64_t bytes);

/// "4.00", or "nothing is sent".
std::string formatRatio(int64_t before, int64_t after);

/// "300 × 200", or "scalar".
std::string formatShape(const std::vector<int64_t> &shape);

/// A text with names in one line that changes no terminal: control characters
/// as hexadecimal numbers, "\x1b".
std::string printable(llvm::StringRef text);

} // namespace mlir::ddp

#endif // DDPHOOK_REPORT_PLANREPORT_H
