//===- Input.h - what ddphook-diff compares ---------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A file that holds a plan or what was measured, whatever its form.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_TOOLS_DIFF_INPUT_H
#define DDPHOOK_TOOLS_DIFF_INPUT_H

#include "ddphook/Report/PlanReport.h"

namespace mlir::ddp {

struct Input {
  /// At least one of them is there; a report may have both.
  std::optional<PlanReport> plan;
  std::optional<TraceSummary> times;
};

/// Reads a report's JSON, a plan's text, a trace, or a module with a plan, as
/// text or bytecode. Errors name the file.
llvm::Expected<Input> readInput(llvm::StringRef path);

} // namespace mlir::ddp

#endif // DDPHOOK_TOOLS_DIFF_INPUT_H
