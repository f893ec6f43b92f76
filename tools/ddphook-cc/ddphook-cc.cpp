// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Command line of the compiler; docs/ddphook-cc.md is its guide. lib/Compiler
// does the work.

#include "OutputFile.h"
#include "PlanReportFile.h"
#include "ToolOptions.h"
#include "ddphook/Compiler/EntryPoints.h"
#include "ddphook/Compiler/SharedObject.h"
#include "ddphook/Compiler/SourceFile.h"

#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;
using namespace mlir::ddp;

namespace {
enum class OutputKind { Object, Shared, LLVMIR, MLIR, PTX };
} // namespace

static cl::OptionCategory category("ddphook-cc options");
static cl::opt<std::string> input(cl::Positional, cl::Required,
                                  cl::desc("FILE.mlir"), cl::cat(category));
static cl::opt<std::string> output("o", cl::Required, cl::value_desc("file"),
                                   cl::desc("Output file"), cl::cat(category));
static cl::opt<std::string> header("header", cl::value_desc("file.h"),
                                   cl::desc("Write a C header"),
                                   cl::cat(category));
static cl::opt<std::string>
    name("name", cl::value_desc("identifier"), cl::cat(category),
         cl::desc("Prefix of the C functions (default: from FILE)"));
static cl::opt<bool> shared("shared", cl::cat(category),
                            cl::desc("Same as --emit=shared"));
static cl::opt<OutputKind>
    emit("emit", cl::desc("What to write"), cl::init(OutputKind::Object),
         cl::values(clEnumValN(OutputKind::Object, "obj",
                               "An object file (default)"),
                    clEnumValN(OutputKind::Shared, "shared", "A shared object"),
                    clEnumValN(OutputKind::LLVMIR, "llvm", "Optimized LLVM IR"),
                    clEnumValN(OutputKind::MLIR, "mlir", "The LLVM dialect"),
                    clEnumValN(OutputKind::PTX, "ptx", "PTX of the kernels")),
         cl::cat(category));
static cl::opt<std::string> ddpPipeline("ddp-pipeline", cl::cat(category),
                                        cl::value_desc("options"),
                                        cl::desc("Options of ddp-pipeline"));
static cl::list<std::string>
    dialectPlugins("load-dialect-plugin", cl::cat(category),
                   cl::value_desc("library"),
                   cl::desc("Load dialects, such as those with hooks"));
static cl::list<std::string>
    passPlugins("load-pass-plugin", cl::cat(category),
                cl::value_desc("library"),
                cl::desc("Load passes, for --preprocessing-pass-pipeline"));
static cl::opt<std::string> preprocessing(
    "preprocessing-pass-pipeline", cl::cat(category),
    cl::value_desc("builtin.module(…)"),
    cl::desc("Passes to run before ddp-pipeline, as mlir-opt takes them"));
static cl::opt<char> optLevel("O", cl::Prefix, cl::init('3'),
                              cl::value_desc("0-3"), cl::cat(category),
                              cl::desc("Optimization level (default 3)"));
static cl::opt<std::string>
    march("march", cl::init("native"), cl::value_desc("cpu"), cl::cat(category),
          cl::desc("CPU to compile for (default: native, this machine's)"));
static cl::opt<std::string> device(
    "device", cl::init("host"), cl::value_desc("backend"), cl::cat(category),
    cl::desc("Backend whose memory holds the arrays: host (default), cuda, …"));
static cl::opt<std::string> deviceArch(
    "device-arch", cl::value_desc("sm_NN"), cl::cat(category),
    cl::desc("With --device=cuda: oldest GPU that must run the kernels "
             "(default: sm_80)"));
static cl::opt<bool> fuse("fuse-multiply-add", cl::cat(category),
                          cl::desc("Round a*b+c once if the CPU can"));
static cl::opt<std::string> linker(
    "linker", cl::value_desc("program"), cl::cat(category),
    cl::desc(
        "C compiler that links shared objects (default: the built-in LLD)"));

static cl::opt<std::string>
    reportPath("ddp-plan-report", cl::value_desc("file.html"),
               cl::cat(category),
               cl::desc("Explain the plan: FILE.html, FILE.json, or - for text "
                        "on standard output"));
static cl::opt<std::string> reportTrace(
    "ddp-plan-report-trace", cl::value_desc("trace.json"), cl::cat(category),
    cl::desc("With --ddp-plan-report: trace of a run, for measured times"));

/// Writes the output file from `module`, which `compiler` has lowered.
static Error writeOutput(Compiler &compiler, mlir::ModuleOp module,
                         OutputKind kind) {
  std::string text;
  raw_string_ostream os(text);
  if (kind == OutputKind::MLIR) {
    module.print(os);
    return writeText(output, text);
  }
  if (kind == OutputKind::PTX) {
    if (compiler.getDeviceCode().empty())
      return createStringError(
          "expected a module with kernels, but it has none; compile linalg "
          "operations with --device=cuda");
    return writeText(output, compiler.getDeviceCode());
  }
  Expected<std::unique_ptr<Module>> code = compiler.translate(module);
  if (!code)
    return code.takeError();
  if (kind == OutputKind::LLVMIR) {
    (*code)->print(os, /*AAW=*/nullptr);
    return writeText(output, text);
  }
  auto object = compiler.emitObject(**code);
  if (!object)
    return object.takeError();
  StringRef bytes(object->data(), object->size());
  if (kind == OutputKind::Object)
    return writeText(output, bytes);
  SharedObjectOptions options;
  options.linker = linker;
  return writeSharedObject(bytes, output, options);
}

static Error compile() {
  if (optLevel < '0' || optLevel > '3')
    return createStringError("expected -O0, -O1, -O2 or -O3, but got -O" +
                             Twine(optLevel));
  bool isShared = shared || emit == OutputKind::Shared;
  if (shared && emit.getNumOccurrences() && emit != OutputKind::Shared)
    return createStringError("--shared contradicts --emit");

  if (ddpPipeline.getNumOccurrences() > 1)
    return createStringError("--ddp-pipeline is given twice");
  PlanReportFile report;
  if (Error error = report.prepare(PlanReportFile::getValue(reportPath),
                                   PlanReportFile::getValue(reportTrace),
                                   sys::path::filename(input), output))
    return error;
  CompilerOptions options;
  options.name = name.getNumOccurrences()
                     ? name.getValue()
                     : toCIdentifier(sys::path::stem(input));
  options.shared = isShared;
  options.optLevel = optLevel - '0';
  options.march = march;
  options.device = device;
  options.deviceArchitecture = deviceArch;
  options.fuseMultiplyAdd = fuse;
  Expected<std::unique_ptr<Compiler>> compiler = Compiler::create(options);
  if (!compiler)
    return compiler.takeError();

  SourceOptions sourceOptions;
  if (ddpPipeline.getNumOccurrences())
    sourceOptions.ddpPipeline = ddpPipeline;
  sourceOptions.dialectPlugins = dialectPlugins;
  sourceOptions.passPlugins = passPlugins;
  if (preprocessing.getNumOccurrences())
    sourceOptions.preprocessing = preprocessing;
  PlanReporter reporter;
  if (report.isWanted())
    sourceOptions.reporter = &reporter;
  auto source = SourceFile::load(input, sourceOptions, **compiler);
  if (!source)
    return source.takeError();
  mlir::ModuleOp module = (*source)->getModule();
  if (report.isWanted())
    if (Error error = report.write(reporter.getReport(module)))
      return error;
  Expected<std::string> headerText =
      (*compiler)->getHeader(module, sys::path::filename(input));
  if (!headerText)
    return headerText.takeError();
  if (Error error = (*compiler)->lower(module))
    return error;
  if (Error error =
          writeOutput(**compiler, module, isShared ? OutputKind::Shared : emit))
    return error;
  return header.empty() ? Error::success() : writeText(header, *headerText);
}

int main(int argc, char **argv) {
  setVersionPrinter("ddphook-cc");
  if (!checkHelpIsMeant("ddphook-cc", ArrayRef(argv, argc)))
    return 1;
  cl::HideUnrelatedOptions(category);
  cl::ParseCommandLineOptions(argc, argv, "ddphook ahead-of-time compiler\n");
  if (Error error = compile()) {
    // Empty if the error was reported as a diagnostic.
    std::string message = toString(std::move(error));
    if (!message.empty())
      errs() << "ddphook-cc: error: " << message << '\n';
    return 1;
  }
  return 0;
}
