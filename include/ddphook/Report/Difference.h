//===- Difference.h - two plans, two runs -----------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is different between two plans, in words, and between two runs, in time.
// The work of ddphook-diff.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_REPORT_DIFFERENCE_H
#define DDPHOOK_REPORT_DIFFERENCE_H

#include "ddphook/Report/PlanReport.h"

namespace mlir::ddp {

/// A difference each, as a line of text; none for plans that mean the same.
/// Source lines and the module's name do not count. What one report knows and
/// the other does not is not compared.
std::vector<std::string> comparePlans(const PlanReport &before,
                                      const PlanReport &after);

struct TimeComparison {
  /// A table of medians, and a sentence for each that counts.
  std::string text;
  /// Whether any counts.
  bool differs = false;
};

/// Compares medians; those count that differ by more than `tolerance` percent,
/// bytes on the wire, and steps and collectives that only one run has.
TimeComparison compareTimes(const TraceSummary &before,
                            const TraceSummary &after, double tolerance);

} // namespace mlir::ddp

#endif // DDPHOOK_REPORT_DIFFERENCE_H
