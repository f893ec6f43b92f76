//===- ReportWriter.h - reports as pages, text and JSON ---------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Three forms of the same facts. Names may be any text: pages show them
// literally. Pages are HTML and XML, without scripts or other files.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_REPORT_REPORTWRITER_H
#define DDPHOOK_REPORT_REPORTWRITER_H

#include "ddphook/Report/PlanReport.h"

namespace mlir::ddp {

/// For readReport(), and for other programs: docs/reports.md has the keys.
std::string writeReportJSON(const PlanReport &report);

/// For terminals.
std::string writeReportText(const PlanReport &report);

/// For browsers.
std::string writeReportPage(const PlanReport &report);

enum class ReportForm { JSON, Text, Page };

/// Returns the form for a file's name: ".json", ".html", or "-" for text.
llvm::Expected<ReportForm> getReportForm(llvm::StringRef path);

std::string writeReport(const PlanReport &report, ReportForm form);

} // namespace mlir::ddp

#endif // DDPHOOK_REPORT_REPORTWRITER_H
