// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs passes on IR files: all of upstream's and all of ddphook's.

#include "PassRun.h"
#include "ToolOptions.h"
#include "ddphook/Compiler/Passes.h"
#include "ddphook/Dialect/Opaque/OpaqueDialects.h"
#include "ddphook/InitAll.h"

#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Pass/PassRegistry.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/InitLLVM.h"

/// Prints --help. LLVM's version, --help-hidden, has more than a thousand lines
/// about upstream's passes.
static void printHelp() {
  llvm::outs()
      << R"help(ddphook-opt: gradient compression as a compiler transform

usage: ddphook-opt [options] [FILE.mlir]

  -o FILE                       output file, - for standard output (default)
  --ddp-pipeline="OPTIONS"      from ddp.all_reduce to calls of the runtime
  --ddp-lower-to-llvm           from there to the LLVM dialect
  --PASS, --PASS="OPTIONS"      run a pass, for example --ddp-bucketize
  --pass-pipeline=TEXT          run "builtin.module(PASS{OPTIONS},…)"
  --load-dialect-plugin=LIBRARY, --load-pass-plugin=LIBRARY
                                load dialects and passes
  --ddp-plan-report=FILE.html|FILE.json|-
                                explain the plan that the passes make
  --ddp-plan-report-trace=TRACE.json
                                with what a run of the module took
  --remarks-filter=REGEX        print what passes did and refused: 'ddp-.*'
  --mlir-print-ir-after-all     print the IR after every pass
  --verify-each                 verify after each pass, not only the last one
  --split-input-file            run on the parts of the file between // -----
  --verify-diagnostics          check that expected diagnostics appear
  --help                        print this
  --help-hidden                 print all options, those of upstream's passes too
  --version                     print versions

)help";
  // One option of LLVM's library has all passes as its values.
  mlir::PassPipelineCLParser passes(
      "", "ddphook's passes and pipelines (see docs/generated):");
  llvm::cl::getRegisteredOptions().lookup("ddp-pipeline")->printOptionInfo(44);
}

int main(int argc, char **argv) {
  mlir::ddp::setVersionPrinter("ddphook-opt");
  mlir::ddp::registerAllPasses();
  mlir::ddp::registerCompilerPasses();
  mlir::ddp::registerReportOptions();
  if (llvm::any_of(llvm::ArrayRef(argv, argc), [](llvm::StringRef argument) {
        return argument == "--help" || argument == "-help" || argument == "-h";
      })) {
    printHelp();
    return 0;
  }
  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  mlir::ddp::registerAllDialects(registry);
  mlir::registerAllPasses();
  const std::string help = mlir::registerCLIOptions(
      "ddphook: gradient compression as a compiler transform\n", registry);
  const llvm::ArrayRef<const char *> arguments(argv, argc);
  if (!mlir::ddp::checkHelpIsMeant("ddphook-opt", arguments) ||
      !mlir::ddp::checkPlugins(arguments))
    return 1;
  auto [input, output] = mlir::parseCLIOptions(argc, argv, help);
  // Plugins, which may provide the real ones, are loaded by now.
  mlir::ddp::registerOpaqueDialects(registry);
  auto config = mlir::MlirOptMainConfig::createFromCLOptions();
  if (config.shouldShowDialects() || config.shouldListPasses())
    return mlir::asMainReturnCode(
        mlir::MlirOptMain(argc, argv, input, output, registry));
  llvm::InitLLVM signals(argc, argv);
  llvm::Error error = mlir::ddp::runPasses(config, input, output, registry);
  if (!error)
    return 0;
  // Empty if the error was reported as a diagnostic.
  std::string message = toString(std::move(error));
  if (!message.empty())
    llvm::errs() << "ddphook-opt: error: " << message << '\n';
  return 1;
}
