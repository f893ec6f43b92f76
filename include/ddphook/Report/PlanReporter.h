// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Watches passes while they run, and records facts that the plan lacks: the
// source lines of gradients, why a bucket has its hook, buffers, copies, where
// collectives start and where the step waits for them, and passes' remarks.
//
//   PlanReporter reporter;
//   reporter.attach(pm);
//   if (succeeded(pm.run(module)))
//     if (llvm::Expected<llvm::json::Object> report =
//             reporter.getReport(module))
//       os << llvm::json::Value(std::move(*report));
//
// A reporter does not change what passes do, or their plan. ddphook-report
// turns a report into a page or text; docs/reports.md has the keys.

#pragma once

#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"

#include <memory>

namespace mlir {
class PassManager;
} // namespace mlir

namespace mlir::ddp {

/// Records one run of a pass manager. Must be used by one thread at a time;
/// passes may run in several.
class PlanReporter {
public:
  PlanReporter();
  ~PlanReporter();
  PlanReporter(const PlanReporter &) = delete;
  PlanReporter &operator=(const PlanReporter &) = delete;

  /// Records what the passes of `pm` do when they run. Takes the remarks of the
  /// context, unless it has an engine already: then the report has none. Call
  /// it before each run for the report; neither object must outlive the other.
  void attach(PassManager &pm);

  /// Returns the report of the module that the passes have processed, and
  /// releases the context's remarks. Fails if there is no plan. If the plan is
  /// older than the run, the report has only what the plan and its calls
  /// contain.
  llvm::Expected<llvm::json::Object> getReport(ModuleOp module);

private:
  struct Record;
  class Instrumentation;
  class RemarkStreamer;

  std::shared_ptr<Record> record;
};

} // namespace mlir::ddp
