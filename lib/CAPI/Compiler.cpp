// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "ddphook-c/Compiler.h"

#include "ddphook/Compiler/Compiler.h"
#include "ddphook/Compiler/JitModule.h"
#include "ddphook/Compiler/SharedObject.h"

#include "mlir/CAPI/IR.h"
#include "mlir/CAPI/Support.h"
#include "mlir/CAPI/Wrap.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
struct Options : public CompilerOptions {
  std::optional<std::string> pipeline;
  std::string runtime;
};

struct Compiled : public CompiledModule {
  Compiled(CompiledModule &&module, StringRef runtime)
      : CompiledModule(std::move(module)), runtime(runtime) {}

  std::string runtime;
  llvm::SmallVector<char, 0> shared;
};
} // namespace

DEFINE_C_API_PTR_METHODS(DDPHookCompilerOptions, Options)
DEFINE_C_API_PTR_METHODS(DDPHookCompiledModule, Compiled)
DEFINE_C_API_PTR_METHODS(DDPHookJitModule, JitModule)

DDPHookCompilerOptions ddphookCompilerOptionsCreate() {
  return wrap(new Options());
}

void ddphookCompilerOptionsDestroy(DDPHookCompilerOptions options) {
  delete unwrap(options);
}

#define DDPHOOK_OPTION(Name, member, type, value)                              \
  void ddphookCompilerOptionsSet##Name(DDPHookCompilerOptions options,         \
                                       type member) {                          \
    unwrap(options)->member = value;                                           \
  }
#define DDPHOOK_TEXT_OPTION(Name, member)                                      \
  DDPHOOK_OPTION(Name, member, MlirStringRef, unwrap(member).str())

DDPHOOK_TEXT_OPTION(Name, name)
DDPHOOK_TEXT_OPTION(Pipeline, pipeline)
DDPHOOK_TEXT_OPTION(March, march)
DDPHOOK_TEXT_OPTION(Runtime, runtime)
DDPHOOK_OPTION(Shared, shared, bool, shared)
DDPHOOK_OPTION(OptLevel, optLevel, unsigned, optLevel)
DDPHOOK_OPTION(FuseMultiplyAdd, fuseMultiplyAdd, bool, fuseMultiplyAdd)

void ddphookCompilerOptionsSetDevice(DDPHookCompilerOptions options,
                                     MlirStringRef device,
                                     MlirStringRef architecture) {
  unwrap(options)->device = unwrap(device).str();
  unwrap(options)->deviceArchitecture = unwrap(architecture).str();
}

static llvm::Expected<CompiledModule> compile(ModuleOp module,
                                              const Options &options) {
  DDPPipelineOptions pipeline;
  std::string message;
  if (options.pipeline &&
      failed(pipeline.parse(*options.pipeline, [&](const Twine &text) {
        message = text.str();
        return failure();
      })))
    return llvm::createStringError(message);
  auto compiler = Compiler::create(options);
  if (!compiler)
    return compiler.takeError();
  return (*compiler)->compile(module, options.pipeline ? &pipeline : nullptr);
}

DDPHookCompiledModule ddphookCompile(MlirModule module,
                                     DDPHookCompilerOptions options) {
  llvm::Expected<CompiledModule> compiled =
      compile(unwrap(module), *unwrap(options));
  if (compiled)
    return wrap(new Compiled(std::move(*compiled), unwrap(options)->runtime));
  // Empty if the error was reported as a diagnostic.
  std::string message = llvm::toString(compiled.takeError());
  if (!message.empty())
    emitError(unwrap(module).getLoc()) << message;
  return {nullptr};
}

void ddphookCompiledModuleDestroy(DDPHookCompiledModule compiled) {
  delete unwrap(compiled);
}

static MlirStringRef getString(ArrayRef<char> bytes) {
  return mlirStringRefCreate(bytes.data(), bytes.size());
}

MlirStringRef ddphookCompiledModuleGetObject(DDPHookCompiledModule compiled) {
  return getString(unwrap(compiled)->object);
}

MlirStringRef ddphookCompiledModuleGetHeader(DDPHookCompiledModule compiled) {
  return getString(unwrap(compiled)->header);
}

static void report(llvm::Error error, MlirStringCallback onError,
                   void *userData) {
  std::string message = llvm::toString(std::move(error));
  if (onError)
    onError(getString(message), userData);
}

MlirStringRef ddphookCompiledModuleGetSharedObject(
    DDPHookCompiledModule compiled, MlirStringRef linker,
    MlirStringCallback onError, void *userData) {
  Compiled &module = *unwrap(compiled);
  SharedObjectOptions options;
  options.linker = unwrap(linker).str();
  options.runtime = module.runtime;
  auto shared = linkSharedObject(
      StringRef(module.object.data(), module.object.size()), options);
  if (!shared) {
    report(shared.takeError(), onError, userData);
    return {nullptr, 0};
  }
  module.shared = std::move(*shared);
  return getString(module.shared);
}

DDPHookJitModule ddphookJitModuleCreate(DDPHookCompiledModule compiled,
                                        intptr_t numSymbols,
                                        const DDPHookRuntimeSymbol *symbols,
                                        MlirStringCallback onError,
                                        void *userData) {
  SmallVector<RuntimeSymbol> runtime;
  for (intptr_t i = 0; i < numSymbols; ++i)
    runtime.push_back({symbols[i].name, symbols[i].address});
  auto module = JitModule::load(*unwrap(compiled), runtime);
  if (!module) {
    report(module.takeError(), onError, userData);
    return {nullptr};
  }
  return wrap(module->release());
}

void ddphookJitModuleDestroy(DDPHookJitModule module) { delete unwrap(module); }

const ddphook_compiled_module *ddphookJitModuleGet(DDPHookJitModule module) {
  return &unwrap(module)->get();
}

const ddphook_compiled_entry *ddphookJitModuleFindEntry(DDPHookJitModule module,
                                                        MlirStringRef name) {
  return unwrap(module)->findEntry(unwrap(name));
}
