//===- ReportPictures.h - the pictures of a report's page -------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lanes with bars: the order of a step as compiled, its times as measured, and
// memory.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_LIB_REPORT_REPORTPICTURES_H
#define DDPHOOK_LIB_REPORT_REPORTPICTURES_H

#include "ddphook/Report/PlanReport.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/raw_ostream.h"

namespace mlir::ddp {

/// The colours of a report's hooks, in the order of its buckets.
class HookColours {
public:
  explicit HookColours(const PlanReport &report);

  /// Returns the class name of a hook's colour.
  std::string getStyle(llvm::StringRef hook) const;
  /// Returns that of a bucket's hook, or "n" without a bucket.
  std::string getBucketStyle(llvm::StringRef bucket) const;
  void writeLegend(llvm::raw_ostream &os) const;

private:
  llvm::MapVector<llvm::StringRef, unsigned> numbers;
  llvm::StringMap<llvm::StringRef> hooks;
};

/// Draws where functions run their collectives.
void writeSchedule(llvm::raw_ostream &os, const PlanReport &report,
                   const HookColours &colours);

/// Draws one step on all ranks.
void writeTimeLine(llvm::raw_ostream &os, const TraceSummary &measured,
                   const HookColours &colours);

void writeArena(llvm::raw_ostream &os, const PlanReport &report,
                const HookColours &colours);
void writeStateArena(llvm::raw_ostream &os, const PlanReport &report);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_REPORT_REPORTPICTURES_H
