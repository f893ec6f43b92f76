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

#include "llvm/Support/MemoryBuffer.h"

using namespace llvm;
using namespace mlir::ddp;

Error PlanReportFile::prepare(std::optional<StringRef> reportPath,
                              std::optional<StringRef> traceFile,
                              StringRef moduleName) {
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
