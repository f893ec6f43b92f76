// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "PassRun.h"

#include "PlanReportFile.h"
#include "ddphook/Compiler/Compiler.h"
#include "ddphook/Dialect/Opaque/OpaqueDialects.h"
#include "ddphook/Report/PlanReporter.h"

#include "mlir/IR/Remarks.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Support/FileUtilities.h"
#include "mlir/Tools/Plugins/DialectPlugin.h"
#include "mlir/Tools/Plugins/PassPlugin.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"
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
      llvm::cl::desc(
          "With --ddp-plan-report: trace of a run, for measured times")};
};

/// Runs after the last pass, instead of a verifier after each one.
class VerifyPass : public PassWrapper<VerifyPass, OperationPass<>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(VerifyPass)

  StringRef getName() const override { return "Verify"; }

  void runOnOperation() override {
    if (failed(verify(getOperation())))
      signalPassFailure();
    markAllAnalysesPreserved();
  }
};

/// Runs after the verifier.
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

bool mlir::ddp::checkPlugins(ArrayRef<const char *> arguments) {
  for (size_t i = 1; i < arguments.size(); ++i) {
    StringRef argument = arguments[i];
    if (!argument.consume_front("-"))
      continue;
    argument.consume_front("-");
    auto [name, path] = argument.split('=');
    const bool bringsDialects = name == "load-dialect-plugin";
    if (!bringsDialects && name != "load-pass-plugin")
      continue;
    if (name.size() == argument.size() && i + 1 < arguments.size())
      path = arguments[++i];
    llvm::Error error = bringsDialects
                            ? DialectPlugin::load(path.str()).takeError()
                            : PassPlugin::load(path.str()).takeError();
    if (!error)
      continue;
    llvm::errs() << "ddphook-opt: error: " << toString(std::move(error))
                 << '\n';
    return false;
  }
  return true;
}

static bool isReportWanted() {
  const ReportOptions &options = getReportOptions();
  return options.path.getNumOccurrences() || options.trace.getNumOccurrences();
}

/// Prepares the file of the report.
static llvm::Error prepareReport(const MlirOptMainConfig &config,
                                 StringRef input, StringRef output,
                                 PlanReportFile &file) {
  if (!config.inputSplitMarker().empty())
    return llvm::createStringError("expected one module for a report, but got "
                                   "--split-input-file");
  if (config.shouldEmitRemarks())
    return llvm::createStringError(
        "expected no remark filter with --ddp-plan-report, since a report "
        "includes all remarks of ddphook's passes");
  const ReportOptions &options = getReportOptions();
  return file.prepare(PlanReportFile::getValue(options.path),
                      PlanReportFile::getValue(options.trace),
                      input == "-" ? "" : llvm::sys::path::filename(input),
                      output);
}

/// Attaches a reporter to the passes.
static void attachReport(PassManager &pm, const PlanReportFile &file) {
  // Upstream's tool sets an engine that reports nothing without a filter.
  pm.getContext()->setRemarkEngine(nullptr);
  auto reporter = std::make_shared<PlanReporter>();
  reporter->attach(pm);
  pm.addPass(std::make_unique<WriteReportPass>(reporter, file));
}

/// Returns true if the command line specifies when to verify.
static bool isVerifierChosen() {
  return llvm::cl::getRegisteredOptions()
      .lookup("verify-each")
      ->getNumOccurrences();
}

llvm::Error mlir::ddp::runPasses(MlirOptMainConfig config, StringRef input,
                                 StringRef output, DialectRegistry &registry) {
  PlanReportFile file;
  const bool reports = isReportWanted();
  if (reports)
    if (llvm::Error error = prepareReport(config, input, output, file))
      return error;
  // Verifying after each pass of the pipeline takes two thirds of the time.
  const bool verifiesAtEnd = !isVerifierChosen();
  if (verifiesAtEnd)
    config.verifyPasses(false);
  config.setPassPipelineSetupFn([&, passes = config](PassManager &pm) {
    if (failed(passes.setupPassPipeline(pm)))
      return failure();
    if (verifiesAtEnd && !pm.empty())
      pm.addPass(std::make_unique<VerifyPass>());
    if (reports)
      attachReport(pm, file);
    return success();
  });

  if (input == "-" && llvm::sys::Process::StandardInIsUserInput())
    llvm::errs() << "(reading standard input; end it with Ctrl-D)\n";
  std::string message;
  std::unique_ptr<llvm::MemoryBuffer> buffer = openInputFile(input, &message);
  if (!buffer)
    return llvm::createStringError(message);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  message = explainUnreadable(buffer->getBuffer(), context);
  if (!message.empty())
    return llvm::createStringError("'" + input + "': " + message);
  bool isDropped = reports && file.isOnStandardOutput() && output == "-";
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
