// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiles in memory (lib/Compiler), then runs the module on ranks
// (runtime/exec). Everything before the fork happens in one thread.

#include "PlanReportFile.h"
#include "runner.h"
#include "tool_version.h"

#include "ddphook/Compiler/JitModule.h"
#include "ddphook/Compiler/SourceFile.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/Path.h"

#include <cstdio>

using namespace mlir::ddp;
using ddphook::invalid;

static const char toolName[] = "ddphook-run";
static const char compilerHelp[] =
    "  --ddp-pipeline=OPTIONS\n"
    "                     options of ddp-pipeline, as for ddphook-cc\n"
    "  --load-dialect-plugin=LIBRARY\n"
    "                     load dialects, with hooks for example\n"
    "  --load-pass-plugin=LIBRARY\n"
    "                     load passes, for the next flag\n"
    "  --preprocessing-pass-pipeline=PIPELINE\n"
    "                     passes to run before ddp-pipeline, "
    "builtin.module(…)\n"
    "  --march=CPU        CPU to compile for (default native)\n"
    "  --ddp-plan-report=FILE.html|FILE.json|-\n"
    "                     explain the plan, before the first step\n"
    "  --ddp-plan-report-trace=FILE\n"
    "                     with --ddp-plan-report: what an earlier run "
    "measured,\n"
    "                     the file of its --trace\n";

namespace {
struct CompilerFlags {
  std::string path;
  SourceOptions source;
  std::optional<std::string> march, report, reportTrace;
};
} // namespace

/// Parses the arguments that the runner does not know.
static ddphook::Status parseCompilerFlags(const std::vector<std::string> &rest,
                                          CompilerFlags &flags) {
  for (size_t i = 0; i < rest.size(); ++i) {
    const std::string &argument = rest[i];
    if (argument.size() < 2 || argument[0] != '-') {
      if (!flags.path.empty())
        return invalid("expected one file, but got '" + flags.path + "' and '" +
                       argument + "'");
      flags.path = argument;
      continue;
    }
    size_t equals = argument.find('=');
    std::string flag = argument.substr(0, equals);
    auto *plugins = flag == "--load-dialect-plugin"
                        ? &flags.source.dialectPlugins
                    : flag == "--load-pass-plugin" ? &flags.source.passPlugins
                                                   : nullptr;
    auto *value = flag == "--ddp-pipeline"      ? &flags.source.ddpPipeline
                  : flag == "--march"           ? &flags.march
                  : flag == "--ddp-plan-report" ? &flags.report
                  : flag == "--ddp-plan-report-trace" ? &flags.reportTrace
                  : flag == "--preprocessing-pass-pipeline"
                      ? &flags.source.preprocessing
                      : nullptr;
    if (!plugins && !value)
      return ddphook::unknownFlag(
          argument, {"ddp-pipeline", "ddp-plan-report", "ddp-plan-report-trace",
                     "load-dialect-plugin", "load-pass-plugin",
                     "preprocessing-pass-pipeline", "march"});
    if (equals == std::string::npos && i + 1 == rest.size())
      return invalid(flag + " needs a value");
    std::string text =
        equals == std::string::npos ? rest[++i] : argument.substr(equals + 1);
    if (plugins) {
      plugins->push_back(text);
      continue;
    }
    if (*value)
      return invalid(flag + " is given twice");
    *value = text;
  }
  return flags.path.empty() ? invalid("expected a file, FILE.mlir")
                            : ddphook::Status::ok();
}

static llvm::Expected<std::unique_ptr<JitModule>>
compile(const CompilerFlags &flags, const std::string &device) {
  CompilerOptions options;
  options.device = device;
  options.march = flags.march.value_or(options.march);
  auto compiler = Compiler::create(options);
  if (!compiler)
    return compiler.takeError();
  PlanReportFile report;
  if (llvm::Error error =
          report.prepare(flags.report, flags.reportTrace,
                         llvm::sys::path::filename(flags.path), /*output=*/""))
    return error;
  PlanReporter reporter;
  SourceOptions sourceOptions = flags.source;
  if (report.isWanted())
    sourceOptions.reporter = &reporter;
  auto source = SourceFile::load(flags.path, sourceOptions, **compiler);
  if (!source)
    return source.takeError();
  if (report.isWanted())
    if (llvm::Error error =
            report.write(reporter.getReport((*source)->getModule())))
      return error;
  auto compiled = (*compiler)->compile((*source)->getModule());
  if (!compiled)
    return compiled.takeError();
  return JitModule::load(*compiled);
}

int main(int argc, char **argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (llvm::is_contained(arguments, "--help")) {
    std::printf("usage: %s FILE.mlir --entry=NAME [flags]\n\n%s%s", toolName,
                ddphook::runOptionsHelp, compilerHelp);
    return 0;
  }
  if (llvm::is_contained(arguments, "--version")) {
    std::printf("%sLLVM " LLVM_VERSION_STRING "\n",
                ddphook::describeVersion(toolName).c_str());
    return 0;
  }
  ddphook::RunOptions options;
  CompilerFlags flags;
  std::vector<std::string> rest;
  ddphook::Status status = parseRunOptions(arguments, options, rest);
  if (status.isOk())
    status = parseCompilerFlags(rest, flags);
  if (!status.isOk())
    return reportError(toolName, status, /*isUsage=*/true);
  auto module = compile(flags, chooseDevice(options));
  if (!module) {
    std::string message = toString(module.takeError());
    // Empty if the error was reported as a diagnostic.
    return message.empty() ? 1 : reportError(toolName, invalid(message));
  }
  return runModule(toolName, (*module)->get(), options);
}
