//===- PlanReportFile.cpp - the option --ddp-plan-report ------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See PlanReportFile.h.
//
//===----------------------------------------------------------------------===//

#include "PlanReportFile.h"

#include "OutputFile.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

using namespace llvm;
using namespace mlir::ddp;

/// Returns true if a report to one file would overwrite the other.
static bool isSameFile(StringRef report, StringRef other) {
  auto getPath = [](StringRef path) {
    SmallString<128> result(path);
    sys::fs::make_absolute(result);
    sys::path::remove_dots(result, /*remove_dot_dot=*/true);
    return result;
  };
  bool isSame = false; // by another name, if both exist
  return report != "-" &&
         (getPath(report) == getPath(other) ||
          (!sys::fs::equivalent(report, other, isSame) && isSame));
}

Error PlanReportFile::prepare(std::optional<StringRef> reportPath,
                              std::optional<StringRef> traceFile,
                              StringRef moduleName, StringRef output) {
  module = moduleName.str();
  if (!reportPath)
    return traceFile ? createStringError("expected --ddp-plan-report with "
                                         "--ddp-plan-report-trace")
                     : Error::success();
  path = reportPath->str();
  Expected<ReportForm> parsed = getReportForm(path);
  if (!parsed)
    return parsed.takeError();
  form = *parsed;
  for (StringRef other : {output, traceFile.value_or("")})
    if (isSameFile(path, other))
      return createStringError("expected a file of its own for the report, but "
                               "'" +
                               path + "' is " +
                               (other == output ? "the output" : "the trace"));
  if (!traceFile)
    return Error::success();
  tracePath = traceFile->str();
  auto buffer = MemoryBuffer::getFile(tracePath);
  if (!buffer)
    return createStringError("cannot read '" + tracePath +
                             "': " + buffer.getError().message());
  Expected<StepTrace> read = readTrace((*buffer)->getBuffer());
  if (!read)
    return createStringError("in '" + tracePath +
                             "': " + toString(read.takeError()));
  trace = std::move(*read);
  return Error::success();
}

Error PlanReportFile::write(Expected<PlanReport> report) const {
  if (!report)
    return report.takeError();
  report->module = module;
  if (trace)
    if (Error error = addMeasurements(*report, *trace))
      return createStringError("in '" + tracePath +
                               "': " + toString(std::move(error)));
  return writeText(path, writeReport(*report, form));
}
