//===- StepTrace.h - measurements of steps ----------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads the traces that the runtime writes (Chrome's trace events;
// docs/reports.md lists the fields) and summarizes them: medians over steps,
// and separate times in which bytes move and in which ranks wait.
//
// Times are in microseconds.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_REPORT_STEPTRACE_H
#define DDPHOOK_REPORT_STEPTRACE_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <string>
#include <vector>

namespace mlir::ddp {

/// 73 years, longer than any run: larger times are corrupt.
inline constexpr double kMostTime = 2.3e15;

/// An interval on the time line of a rank.
struct TraceEvent {
  enum Kind { Step, Kernel, Collective, Wait };
  Kind kind = Step;
  std::string name;
  /// For a collective: its number in the plan, and its bucket.
  int64_t collective = -1;
  std::string bucket;
  int64_t rank = 0;
  /// 0: the thread of steps; 1: that of communication.
  int64_t thread = 0;
  double begin = 0, duration = 0;
  /// The part of a collective in which it waited for other ranks.
  double waiting = 0;
  /// The number of the step; -1 if the trace does not contain it.
  int64_t step = -1;
  /// The bytes that the rank sends; -1 if the trace does not contain them.
  int64_t wireBytes = -1;
  /// The run ended before the event did.
  bool isUnfinished = false;

  double getEnd() const { return begin + duration; }
};

struct StepTrace {
  std::string run;
  int64_t worldSize = 0;
  /// Events that did not fit into the runtime's buffer.
  int64_t numLost = 0;
  /// Why ranks ended: "rank 1 failed: …".
  std::vector<std::string> failures;
  /// Sorted by rank, thread and begin; enclosing events come first.
  std::vector<TraceEvent> events;
};

/// Reads a trace. Fails if the text is not a trace, is truncated, is of another
/// version, or has impossible times.
llvm::Expected<StepTrace> readTrace(llvm::StringRef text);

/// The times of a collective of the plan: medians over its runs of means over
/// ranks. Only the runs that the most ranks recorded count.
struct MeasuredCollective {
  int64_t number = -1;
  std::string name, bucket;
  int64_t runs = 0;
  /// From begin to end, and the parts in which it did and did not wait for
  /// other ranks. These are medians, so they need not add up to the total.
  double total = 0, waiting = 0, moving = 0;
  /// How long the thread of steps was blocked while it ran.
  double exposed = 0;
  /// The bytes that a rank sends; -1 if the trace does not contain them, and in
  /// reports, whose buckets contain them.
  int64_t wireBytes = -1;
};

/// The times of an entry point: medians over its runs of means over ranks.
struct MeasuredStep {
  std::string name;
  int64_t runs = 0;
  double total = 0;
  /// How long collectives were in flight or running.
  double communicating = 0;
  /// How long the thread of steps was blocked.
  double exposed = 0;
};

struct TraceSummary {
  std::string run;
  int64_t worldSize = 0, numLost = 0;
  std::vector<std::string> failures;
  std::vector<MeasuredStep> steps;
  std::vector<MeasuredCollective> collectives;
  /// The events on every rank of the step with the median time. Times are
  /// relative to its earliest begin.
  std::vector<TraceEvent> picture;
};

TraceSummary summarize(const StepTrace &trace);

} // namespace mlir::ddp

#endif // DDPHOOK_REPORT_STEPTRACE_H
