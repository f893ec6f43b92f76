// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "ddphook/Compiler/SourceFile.h"

#include "StageErrors.h"

#include "ddphook/Compiler/Passes.h"
#include "ddphook/Dialect/Opaque/OpaqueDialects.h"
#include "ddphook/InitAll.h"

#include "mlir/InitAllPasses.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Support/FileUtilities.h"
#include "mlir/Tools/Plugins/DialectPlugin.h"
#include "mlir/Tools/Plugins/PassPlugin.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace mlir;
using namespace mlir::ddp;

/// Registers all passes that a pipeline may name, including plugins'.
static llvm::Error registerPasses(ArrayRef<std::string> plugins) {
  mlir::registerAllPasses();
  mlir::ddp::registerAllPasses();
  registerCompilerPasses();
  for (const std::string &path : plugins) {
    llvm::Expected<PassPlugin> plugin = PassPlugin::load(path);
    if (!plugin)
      return plugin.takeError();
    plugin->registerPassRegistryCallbacks();
  }
  return llvm::Error::success();
}

SourceFile::SourceFile(const DialectRegistry &registry)
    // ddphook-run forks after compiling: no thread pool.
    : context(registry, MLIRContext::Threading::DISABLED),
      diagnostics(sources, &context) {
  // The operation may be a whole module.
  context.printOpOnDiagnostic(false);
  context.loadAllAvailableDialects();
}

llvm::Error SourceFile::parse(StringRef path) {
  std::string message;
  std::unique_ptr<llvm::MemoryBuffer> buffer = openInputFile(path, &message);
  if (!buffer)
    return makeError(message);
  message = explainUnreadable(buffer->getBuffer(), context);
  if (!message.empty())
    return makeError("'" + path + "': " + message);
  sources.AddNewSourceBuffer(std::move(buffer), llvm::SMLoc());
  StageErrors errors(&context);
  module = parseSourceFile<ModuleOp>(sources, &context);
  return module ? llvm::Error::success()
                : errors.fail("cannot parse '" + path + "'");
}

llvm::Error SourceFile::run(StringRef pipeline, PlanReporter *reporter) {
  std::string message;
  llvm::raw_string_ostream os(message);
  FailureOr<OpPassManager> passes = parsePassPipeline(pipeline, os);
  if (succeeded(passes) && passes->getOpAnchorName() != "builtin.module" &&
      passes->getOpAnchorName() != OpPassManager::getAnyOpAnchorName())
    os << "expected builtin.module(…), but got '" << pipeline << "'";
  if (failed(passes) || !message.empty())
    return makeError("in the preprocessing pass pipeline: " +
                     StringRef(message).trim());
  PassManager pm(&context, passes->getOpAnchorName());
  static_cast<OpPassManager &>(pm) = std::move(*passes);
  if (reporter)
    reporter->attach(pm);
  StageErrors errors(&context);
  return succeeded(pm.run(*module))
             ? llvm::Error::success()
             : errors.fail("the preprocessing pass pipeline failed");
}

llvm::Expected<std::unique_ptr<SourceFile>>
SourceFile::load(StringRef path, const SourceOptions &options,
                 Compiler &compiler) {
  DialectRegistry registry;
  registerCompilerDialects(registry);
  for (const std::string &library : options.dialectPlugins) {
    llvm::Expected<DialectPlugin> plugin = DialectPlugin::load(library);
    if (!plugin)
      return plugin.takeError();
    plugin->registerDialectRegistryCallbacks(registry);
  }
  registerOpaqueDialects(registry);
  if (options.preprocessing || !options.passPlugins.empty())
    if (llvm::Error error = registerPasses(options.passPlugins))
      return error;
  DDPPipelineOptions pipeline;
  std::string message;
  if (failed(pipeline.parse(options.ddpPipeline.value_or(""),
                            [&](const llvm::Twine &text) {
                              message = text.str();
                              return failure();
                            })))
    return makeError(message);

  std::unique_ptr<SourceFile> source(new SourceFile(registry));
  if (llvm::Error error = source->parse(path))
    return error;
  if (options.preprocessing)
    if (llvm::Error error =
            source->run(*options.preprocessing, options.reporter))
      return error;
  if (getPlan(source->getModule())) {
    if (options.ddpPipeline)
      return makeError("'" + path +
                       "' has a plan: ddp-pipeline has already run on it, so "
                       "its options cannot be set");
    return source;
  }
  if (llvm::Error error =
          compiler.runPipeline(source->getModule(), pipeline, options.reporter))
    return error;
  return source;
}
