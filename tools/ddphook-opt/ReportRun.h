//===- ReportRun.h - passes that are reported on ----------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddphook-opt with --ddp-plan-report.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_TOOLS_OPT_REPORTRUN_H
#define DDPHOOK_TOOLS_OPT_REPORTRUN_H

#include "mlir/IR/DialectRegistry.h"
#include "llvm/Support/Error.h"

namespace mlir::ddp {

/// Adds the options. To be called before the command line is parsed.
void registerReportOptions();

/// Whether the command line asks for a report.
bool isReportWanted();

/// Does what upstream's MlirOptMain() does with the command line, and writes
/// the report behind the last pass. The error's text is empty if messages have
/// said it. With a report on standard output, the module goes there only if
/// the options name that output.
llvm::Error runWithReport(StringRef input, StringRef output,
                          DialectRegistry &registry);

} // namespace mlir::ddp

#endif // DDPHOOK_TOOLS_OPT_REPORTRUN_H
