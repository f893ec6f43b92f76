//===- StepTrace.h - what was measured of a step ----------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads the traces that the runtime writes (Chrome's trace events; docs/
// reports.md has what is read of them) and sums them up: medians over steps,
// and time in which bytes move apart from time in which ranks wait.
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

/// 73 years, which no run takes: greater times are damaged numbers.
inline constexpr double kMostTime = 2.3e15;

/// An interval on the time line of a rank.
struct TraceEvent {
  enum Kind { Step, Kernel, Collective, Wait };
  Kind kind = Step;
  std::string name;
  /// Of a collective: its number in the plan, and its bucket.
  int64_t collective = -1;
  std::string bucket;
  int64_t rank = 0;
  /// 0: the thread of steps; 1: that of communication.
  int64_t thread = 0;
  double begin = 0, duration = 0;
  /// The part of a collective in which it waited for other ranks.
  double waiting = 0;
  /// The number of the step; -1 where the trace does not say it.
  int64_t step = -1;
  /// What the rank puts on the wire; -1 where the trace does not say it.
  int64_t wireBytes = -1;
  /// The run ended before the event did.
  bool isUnfinished = false;

  double getEnd() const { return begin + duration; }
};

struct StepTrace {
  std::string run;
  int64_t worldSize = 0;
  /// Events that the runtime had no room for.
  int64_t numLost = 0;
  /// What ended ranks: "rank 1 failed: …".
  std::vector<std::string> failures;
  /// By rank, thread and begin; what contains others comes before them.
  std::vector<TraceEvent> events;
};

/// Reads a trace. Fails for text that is none, that ends too early, that is of
/// another version, or that has times that no run can take.
llvm::Expected<StepTrace> readTrace(llvm::StringRef text);

/// What a collective of the plan took: medians over its runs, of means over
/// ranks. Runs that a rank lacks do not count, unless it lacks all.
struct MeasuredCollective {
  int64_t number = -1;
  std::string name, bucket;
  int64_t runs = 0;
  /// From begin to end; the parts of it in which it waited for other ranks, and
  /// in which it did not. As medians these two need not add up to the first.
  double total = 0, waiting = 0, moving = 0;
  /// How long the thread of steps stood still while it ran.
  double exposed = 0;
  /// What a rank puts on the wire; -1 where the trace does not say it, and in
  /// reports, whose buckets do.
  int64_t wireBytes = -1;
};

/// What an entry point took: medians over its runs, of means over ranks.
struct MeasuredStep {
  std::string name;
  int64_t runs = 0;
  double total = 0;
  /// Collectives were in flight, or ran, for this long.
  double communicating = 0;
  /// The thread of steps stood still for this long.
  double exposed = 0;
};

struct TraceSummary {
  std::string run;
  int64_t worldSize = 0, numLost = 0;
  std::vector<std::string> failures;
  std::vector<MeasuredStep> steps;
  std::vector<MeasuredCollective> collectives;
  /// The events of one step on every rank, the one that took the median time,
  /// with times from its earliest begin.
  std::vector<TraceEvent> picture;
};

TraceSummary summarize(const StepTrace &trace);

} // namespace mlir::ddp

#endif // DDPHOOK_REPORT_STEPTRACE_H
