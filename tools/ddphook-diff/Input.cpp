//===- Input.cpp - input files of ddphook-diff ----------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See Input.h.
//
//===----------------------------------------------------------------------===//

#include "Input.h"

#include "ddphook/Dialect/DDP/IR/DDP.h"
#include "ddphook/Report/PlanReporter.h"

#include "mlir/InitAllDialects.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"

using namespace mlir;
using namespace mlir::ddp;

static llvm::Expected<Input>
readModule(std::unique_ptr<llvm::MemoryBuffer> buffer) {
  DialectRegistry registry;
  mlir::registerAllDialects(registry);
  registry.insert<DDPDialect>();
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  // Only the plan and calls are read.
  context.allowUnregisteredDialects();
  std::string message;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    if (message.empty())
      llvm::raw_string_ostream(message)
          << diagnostic.getLocation() << ": " << diagnostic;
    return success();
  });
  llvm::SourceMgr sources;
  sources.AddNewSourceBuffer(std::move(buffer), llvm::SMLoc());
  OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(sources, &context);
  if (!module)
    return llvm::createStringError("expected a report, a plan, a trace or a "
                                   "module, but got none of them: " +
                                   message);
  llvm::Expected<PlanReport> report = PlanReporter().getReport(*module);
  if (!report)
    return report.takeError();
  return Input{std::move(*report), std::nullopt};
}

/// Returns true if `text` has that key, which identifies its kind, without
/// parsing it: traces are large. A string is only a key if a colon follows it.
static bool hasKey(StringRef text, StringRef key) {
  std::string quoted = ("\"" + key + "\"").str();
  for (size_t at = text.find(quoted); at != StringRef::npos;
       at = text.find(quoted, at + 1))
    if (text.substr(at + quoted.size()).ltrim().starts_with(":"))
      return true;
  return false;
}

static llvm::Expected<Input> readJSON(StringRef text) {
  if (hasKey(text, "ddphook_report")) {
    llvm::Expected<PlanReport> report = readReport(text);
    if (!report)
      return report.takeError();
    std::optional<TraceSummary> times = report->measured;
    return Input{std::move(*report), std::move(times)};
  }
  if (hasKey(text, "traceEvents")) {
    llvm::Expected<StepTrace> trace = readTrace(text);
    if (!trace)
      return trace.takeError();
    return Input{std::nullopt, summarize(*trace)};
  }
  llvm::Expected<PlanReport> plan = readPlan(text);
  if (!plan)
    return plan.takeError();
  return Input{std::move(*plan), std::nullopt};
}

llvm::Expected<Input> mlir::ddp::readInput(StringRef path) {
  auto buffer = llvm::MemoryBuffer::getFileOrSTDIN(path);
  if (!buffer)
    return llvm::createStringError("cannot read '" + path +
                                   "': " + buffer.getError().message());
  StringRef text = (*buffer)->getBuffer();
  llvm::Expected<Input> input = text.ltrim().starts_with("{")
                                    ? readJSON(text)
                                    : readModule(std::move(*buffer));
  if (!input)
    return llvm::createStringError("in '" + path +
                                   "': " + toString(input.takeError()));
  return input;
}
