//===- ReportWords.h - wording of reports in all forms ----------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Phrases about a part of a report, for text and for pages.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_LIB_REPORT_REPORTWORDS_H
#define DDPHOOK_LIB_REPORT_REPORTWORDS_H

#include "ddphook/Report/PlanReport.h"

namespace mlir::ddp {

/// "1 bucket", "2 buckets".
std::string countNoun(int64_t count, llvm::StringRef noun);

/// "1.25 ms", from microseconds.
std::string formatTime(double microseconds);

/// "all_reduce of 8970 f32 as f16".
std::string describeCollective(const ReportCollective &collective);

/// Describes what overlaps with a collective: "in flight alongside 3
/// linalg.generic, 1 cast".
std::string describeOverlap(const ReportCollective &collective);

/// "1.00 kB → 500 B (−50.0 %)".
std::string describeChange(int64_t before, int64_t after);

/// A collective's number in the plan, and its name: "2  all_reduce b0".
std::string describeMeasured(const MeasuredCollective &collective);

/// "mean over @dp, f32 as f16 on the wire".
std::string describeReduction(const ReportBucket &bucket);

/// "4 ranks", "all ranks", "ranks of one node".
std::string describeGroup(const ReportGroup &group);

/// Returns a hook without its parameters: "ddp.powersgd".
llvm::StringRef getHookName(llvm::StringRef hook);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_REPORT_REPORTWORDS_H
