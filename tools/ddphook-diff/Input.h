//===- Input.h - input files of ddphook-diff --------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A file with a plan or measurements, in any form.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_TOOLS_DIFF_INPUT_H
#define DDPHOOK_TOOLS_DIFF_INPUT_H

#include "ddphook/Report/PlanReport.h"

namespace mlir::ddp {

struct Input {
  /// At least one of them is set; a report may have both.
  std::optional<PlanReport> plan;
  std::optional<TraceSummary> times;
};

/// Reads a report's JSON, a plan's text, a trace, or a module with a plan, as
/// text or bytecode. Errors name the file.
llvm::Expected<Input> readInput(llvm::StringRef path);

} // namespace mlir::ddp

#endif // DDPHOOK_TOOLS_DIFF_INPUT_H
