//===- ReportRun.cpp - passes that are reported on ------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See ReportRun.h.
//
//===----------------------------------------------------------------------===//

#include "ReportRun.h"

#include "PlanReportFile.h"
#include "ddphook/Compiler/Compiler.h"
#include "ddphook/Report/PlanReporter.h"

#include "mlir/IR/Remarks.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Support/FileUtilities.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/ToolOutputFile.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
struct ReportOptions {
  llvm::cl::opt<std::string> path{
      "ddp-plan-report", llvm::cl::value_desc("file"),
      llvm::cl::desc("Explain the plan that the passes make: FILE.html, "
                     "FILE.json, or - for text on standard output")};
  llvm::cl::opt<std::string> trace{
      "ddp-plan-report-trace", llvm::cl::value_desc("trace.json"),
      llvm::cl::desc("With --ddp-plan-report: what a run of the module took")};
};

/// Stands behind the last pass.
class WriteReportPass : public PassWrapper<WriteReportPass, OperationPass<>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(WriteReportPass)

  WriteReportPass(std::shared_ptr<PlanReporter> reporter,
                  const PlanReportFile &file)
      : reporter(std::move(reporter)), file(file) {}

  StringRef getName() const override { return "WriteReport"; }

  void runOnOperation() override {
    auto module = dyn_cast<ModuleOp>(getOperation());
    llvm::Error error =
        module ? file.write(reporter->getReport(module))
               : llvm::createStringError("expected a module for a report");
    if (!error)
      return;
    emitError(getOperation()->getLoc()) << toString(std::move(error));
    signalPassFailure();
  }

private:
  std::shared_ptr<PlanReporter> reporter;
  const PlanReportFile &file;
};
} // namespace

static ReportOptions &getReportOptions() {
  static ReportOptions options;
  return options;
}

void mlir::ddp::registerReportOptions() { getReportOptions(); }

bool mlir::ddp::isReportWanted() {
  const ReportOptions &options = getReportOptions();
  return options.path.getNumOccurrences() || options.trace.getNumOccurrences();
}

llvm::Error mlir::ddp::runWithReport(StringRef input, StringRef output,
                                     DialectRegistry &registry) {
  MlirOptMainConfig config = MlirOptMainConfig::createFromCLOptions();
  if (!config.inputSplitMarker().empty())
    return llvm::createStringError("expected one module for a report, but got "
                                   "--split-input-file");
  if (config.shouldEmitRemarks())
    return llvm::createStringError(
        "expected no filter of remarks beside --ddp-plan-report, since a "
        "report has all remarks of ddphook's passes");
  const ReportOptions &options = getReportOptions();
  PlanReportFile file;
  if (llvm::Error error = file.prepare(
          PlanReportFile::getValue(options.path),
          PlanReportFile::getValue(options.trace),
          input == "-" ? "" : llvm::sys::path::filename(input), output))
    return error;
  config.setPassPipelineSetupFn([&, passes = config](PassManager &pm) {
    if (failed(passes.setupPassPipeline(pm)))
      return failure();
    // Upstream's tool has an engine that reports nothing without a filter.
    pm.getContext()->setRemarkEngine(nullptr);
    auto reporter = std::make_shared<PlanReporter>();
    reporter->attach(pm);
    pm.addPass(std::make_unique<WriteReportPass>(reporter, file));
    return success();
  });

  std::string message;
  std::unique_ptr<llvm::MemoryBuffer> buffer = openInputFile(input, &message);
  if (!buffer)
    return llvm::createStringError(message);
  bool isDropped = file.isOnStandardOutput() && output == "-";
  std::unique_ptr<llvm::ToolOutputFile> outputFile =
      openOutputFile(isDropped ? "/dev/null" : output, &message);
  if (!outputFile)
    return llvm::createStringError(message);
  if (failed(
          MlirOptMain(outputFile->os(), std::move(buffer), registry, config)))
    return llvm::make_error<DiagnosedError>();
  outputFile->keep();
  return llvm::Error::success();
}
