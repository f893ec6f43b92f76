//===- PlanReporter.h - a report of passes that make a plan -----*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Watches passes while they run, and keeps what the plan does not say: the
// source lines of gradients, why a bucket has its hook, buffers, copies, where
// collectives start and where the step waits for them, and passes' remarks.
//
//   PlanReporter reporter;
//   reporter.attach(pm);
//   if (succeeded(pm.run(module)))
//     if (auto report = reporter.getReport(module))
//       page = writeReportPage(*report);
//
// Passes do the same with a reporter and without, and so does their plan.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_REPORT_PLANREPORTER_H
#define DDPHOOK_REPORT_PLANREPORTER_H

#include "ddphook/Report/PlanReport.h"

#include "mlir/IR/BuiltinOps.h"

#include <memory>

namespace mlir {
class PassManager;
} // namespace mlir

namespace mlir::ddp {

/// What is recorded during one run of a pass manager. Used by one thread at a
/// time; passes may run in several.
class PlanReporter {
public:
  PlanReporter();
  ~PlanReporter();
  PlanReporter(const PlanReporter &) = delete;
  PlanReporter &operator=(const PlanReporter &) = delete;

  /// Records what the passes of `pm` do when they run. Takes the remarks of the
  /// context, unless an engine has them already: then the report has none. To
  /// be called before each run that belongs to the report; neither object has
  /// to outlive the other.
  void attach(PassManager &pm);

  /// Returns the report of the module that the passes made, and gives the
  /// context's remarks back. Fails if there is no plan. What is known of a
  /// module whose plan is older than the run is in the plan and its calls.
  llvm::Expected<PlanReport> getReport(ModuleOp module);

private:
  struct Record;
  class Instrumentation;
  class RemarkStreamer;

  std::shared_ptr<Record> record;
};

} // namespace mlir::ddp

#endif // DDPHOOK_REPORT_PLANREPORTER_H
