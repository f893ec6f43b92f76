//===- PlanReportFile.h - the option --ddp-plan-report ----------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What ddphook-opt, ddphook-cc and ddphook-run do with a report.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_TOOLS_PLANREPORTFILE_H
#define DDPHOOK_TOOLS_PLANREPORTFILE_H

#include "ddphook/Report/ReportWriter.h"

#include "llvm/Support/CommandLine.h"

namespace mlir::ddp {

/// The file of a report, once the command line has named it.
class PlanReportFile {
public:
  /// Checks `path` and reads the trace at `tracePath`, before anything is
  /// compiled. Without a path there is no report. `module` is the input's name,
  /// and `output` the file of what is compiled, if there is one.
  llvm::Error prepare(std::optional<llvm::StringRef> path,
                      std::optional<llvm::StringRef> tracePath,
                      llvm::StringRef module, llvm::StringRef output);

  bool isWanted() const { return !path.empty(); }
  bool isOnStandardOutput() const { return path == "-"; }

  llvm::Error write(llvm::Expected<PlanReport> report) const;

  /// The value of an option that may not be given.
  static std::optional<llvm::StringRef>
  getValue(const llvm::cl::opt<std::string> &option) {
    if (option.getNumOccurrences())
      return llvm::StringRef(option.getValue());
    return std::nullopt;
  }

private:
  std::string path, tracePath, module;
  ReportForm form = ReportForm::Text;
  std::optional<StepTrace> trace;
};

} // namespace mlir::ddp

#endif // DDPHOOK_TOOLS_PLANREPORTFILE_H
