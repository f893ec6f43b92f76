//===- Difference.h - comparison of plans and of runs -----------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compares two plans in words, and two runs in time, for ddphook-diff.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_REPORT_DIFFERENCE_H
#define DDPHOOK_REPORT_DIFFERENCE_H

#include "ddphook/Report/PlanReport.h"

namespace mlir::ddp {

/// Returns the differences, one per line of text; none for equivalent plans.
/// Ignores source lines, the module's name, and facts that only one of the
/// reports contains.
std::vector<std::string> comparePlans(const PlanReport &before,
                                      const PlanReport &after);

struct TimeComparison {
  /// A table of medians, and a sentence for each significant difference.
  std::string text;
  /// True if there are significant differences.
  bool differs = false;
};

/// Compares medians. Differences above `tolerance` percent, in bytes on the
/// wire, and of missing steps or collectives are significant.
TimeComparison compareTimes(const TraceSummary &before,
                            const TraceSummary &after, double tolerance);

} // namespace mlir::ddp

#endif // DDPHOOK_REPORT_DIFFERENCE_H
