//===- Compiler.cpp - from a source file to machine code ------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs the stages of Compiler.h. Code for the host goes through LLVM's
// optimizer and code generator here.
//
//===----------------------------------------------------------------------===//

#include "ddphook/Compiler/Compiler.h"

#include "Kernels.h"

#include "ddphook/Compiler/CHeaderEmitter.h"
#include "ddphook/Compiler/EntryPoints.h"
#include "ddphook/Compiler/Passes.h"
#include "ddphook/InitAll.h"

#include "mlir/IR/Verifier.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Support/FileUtilities.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Tools/Plugins/DialectPlugin.h"
#include "llvm/Analysis/TargetTransformInfo.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/TargetParser/Host.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
llvm::Error makeError(const llvm::Twine &text) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), text);
}

llvm::Error registerDialects(DialectRegistry &registry,
                             ArrayRef<std::string> plugins) {
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  mlir::ddp::registerAllDialects(registry);
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  registerNVVMDialectTranslation(registry);
  for (const std::string &path : plugins) {
    llvm::Expected<DialectPlugin> plugin = DialectPlugin::load(path);
    if (!plugin)
      return plugin.takeError();
    plugin->registerDialectRegistryCallbacks(registry);
  }
  return llvm::Error::success();
}
} // namespace

Compiler::Compiler(CompilerOptions options, const DialectRegistry &registry)
    : options(std::move(options)),
      // ddphook-run forks when the module is compiled: no thread pool.
      context(registry, MLIRContext::Threading::DISABLED),
      diagnostics(sources, &context),
      // Passes that stop at the first error may have found it several times.
      filter(&context, [this](Diagnostic &diagnostic) {
        if (diagnostic.getSeverity() != DiagnosticSeverity::Error)
          return failure();
        std::string text;
        llvm::raw_string_ostream(text)
            << diagnostic.getLocation() << ' ' << diagnostic;
        bool isNew = reportedErrors.insert(text).second;
        return success(!isNew);
      }) {
  // The operation may be a whole module.
  context.printOpOnDiagnostic(false);
  context.loadAllAvailableDialects();
}

Compiler::~Compiler() = default;

llvm::Expected<std::unique_ptr<Compiler>>
Compiler::create(CompilerOptions options) {
  if (toCIdentifier(options.name) != options.name)
    return makeError("expected a C identifier as the module's name, but got '" +
                     options.name + "'");
  DialectRegistry registry;
  if (llvm::Error error = registerDialects(registry, options.dialectPlugins))
    return error;
  std::unique_ptr<Compiler> compiler(
      new Compiler(std::move(options), registry));
  if (llvm::Error error = compiler->createTarget())
    return error;
  return compiler;
}

char DiagnosedError::ID = 0;

llvm::Error Compiler::makeFailure(const llvm::Twine &text) {
  return reportedErrors.empty() ? makeError(text)
                                : llvm::make_error<DiagnosedError>();
}

llvm::Error Compiler::createTarget() {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  llvm::Triple triple(llvm::sys::getDefaultTargetTriple());
  std::string message;
  const llvm::Target *description =
      llvm::TargetRegistry::lookupTarget(triple, message);
  if (!description)
    return makeError(message);

  std::string cpu = options.march;
  std::string features;
  if (cpu == "native") {
    cpu = llvm::sys::getHostCPUName().str();
    for (const auto &feature : llvm::sys::getHostCPUFeatures()) {
      features += features.empty() ? "" : ",";
      features += (feature.second ? "+" : "-") + feature.first().str();
    }
  } else {
    std::unique_ptr<llvm::MCSubtargetInfo> generic(
        description->createMCSubtargetInfo(triple, "", ""));
    if (!generic || !generic->isCPUStringValid(cpu))
      return makeError("expected 'native' or the name of a CPU of " +
                       triple.getArchName() + ", but got '" + cpu + "'");
  }

  llvm::TargetOptions targetOptions;
  targetOptions.AllowFPOpFusion = options.fuseMultiplyAdd
                                      ? llvm::FPOpFusion::Fast
                                      : llvm::FPOpFusion::Strict;
  target.reset(description->createTargetMachine(
      triple, cpu, features, targetOptions, llvm::Reloc::PIC_,
      /*CodeModel=*/std::nullopt,
      *llvm::CodeGenOpt::getLevel(static_cast<int>(options.optLevel))));
  if (!target)
    return makeError("LLVM has no code generator for " + triple.str());
  auto compiler =
      createKernelCompiler(options.device, options.deviceArchitecture);
  if (!compiler)
    return compiler.takeError();
  kernelCompiler = std::move(*compiler);
  return llvm::Error::success();
}

llvm::Error Compiler::load(StringRef path) {
  std::string message;
  auto takeMessage = [&](const llvm::Twine &text) {
    message = text.str();
    return failure();
  };
  DDPPipelineOptions pipeline;
  // Public functions are entry points with collectives and without.
  pipeline.allFunctions = true;
  if (failed(pipeline.parse(options.ddpPipeline.value_or(""), takeMessage)))
    return makeError(message);
  bool isForDevice = options.device != "host";
  if (isForDevice) {
    if (pipeline.memory.hasValue() && pipeline.memory == ArrayMemory::Host)
      return makeError("memory=host in the options of ddp-pipeline contradicts "
                       "the device '" +
                       options.device + "'");
    pipeline.memory = ArrayMemory::Device;
  }
  PassManager pm(&context);
  buildDDPPipeline(pm, pipeline);

  std::unique_ptr<llvm::MemoryBuffer> buffer = openInputFile(path, &message);
  if (!buffer)
    return makeError(message);
  sources.AddNewSourceBuffer(std::move(buffer), llvm::SMLoc());
  module = parseSourceFile<ModuleOp>(sources, &context);
  if (!module)
    return makeFailure("cannot parse '" + path + "'");

  if (getPlan(*module)) {
    if (options.ddpPipeline)
      return makeError("'" + path +
                       "' has a plan: it went through ddp-pipeline already "
                       "and takes no options of it");
    if (isForDevice && !usesDeviceMemory(*module))
      return makeError("'" + path +
                       "' has a plan for memory of the host: expected one made "
                       "by ddp-pipeline with memory=device");
    return llvm::Error::success();
  }
  if (failed(pm.run(*module)))
    return makeFailure("ddp-pipeline failed on '" + path + "'");
  return llvm::Error::success();
}

llvm::Expected<std::string> Compiler::getHeader(StringRef source) {
  FailureOr<EntryPointTable> table = collectEntryPoints(*module);
  if (failed(table))
    return makeFailure("the module's entry points have no C form");
  std::string text;
  llvm::raw_string_ostream os(text);
  writeHeader(os, options.name, source, *table);
  return text;
}

std::pair<unsigned, unsigned> Compiler::getVectorRegisters() {
  // The target answers for a function.
  llvm::Module probe("probe", llvmContext);
  probe.setDataLayout(target->createDataLayout());
  probe.setTargetTriple(target->getTargetTriple());
  llvm::Function *function = llvm::Function::Create(
      llvm::FunctionType::get(llvm::Type::getVoidTy(llvmContext), false),
      llvm::GlobalValue::ExternalLinkage, "probe", probe);
  llvm::TargetTransformInfo info = target->getTargetTransformInfo(*function);
  unsigned width =
      info.getRegisterBitWidth(llvm::TargetTransformInfo::RGK_FixedWidthVector)
          .getFixedValue();
  unsigned number =
      info.getNumberOfRegisters(info.getRegisterClassForType(/*Vector=*/true));
  // Without vector registers, tiles consist of scalars.
  return {std::max(width, 64u), std::max(number, 8u)};
}

llvm::Error Compiler::compileKernels() {
  FailureOr<std::string> code = kernelCompiler->compile(*module);
  if (failed(code))
    return makeFailure("cannot make kernels of the module");
  if (code->empty())
    return llvm::Error::success();
  OpBuilder b(module->getBodyRegion());
  // The driver wants a null at the end.
  std::string text = *code + '\0';
  LLVM::GlobalOp::create(b, module->getLoc(),
                         LLVM::LLVMArrayType::get(b.getI8Type(), text.size()),
                         /*isConstant=*/true, LLVM::Linkage::Internal,
                         kDeviceCodeGlobalName, b.getStringAttr(text));
  deviceCode = std::move(*code);
  return llvm::Error::success();
}

llvm::Error Compiler::lowerForDevice() {
  DDPCheckDeviceMemoryPassOptions checkOptions;
  checkOptions.hasKernels = kernelCompiler != nullptr;
  if (kernelCompiler)
    if (llvm::Error error = compileKernels())
      return error;
  PassManager pm(&context);
  if (kernelCompiler)
    pm.addPass(createDDPLaunchKernelsPass());
  pm.addPass(createDDPCheckDeviceMemoryPass(checkOptions));
  if (failed(pm.run(*module)))
    return makeFailure("cannot compile the module for a device");
  return llvm::Error::success();
}

llvm::Error Compiler::lower() {
  if (llvm::Error error = lowerForDevice())
    return error;
  PassManager pm(&context);
  DDPEmitEntryPointsPassOptions entryOptions;
  entryOptions.name = options.name;
  entryOptions.shared = options.shared;
  pm.addPass(createDDPEmitEntryPointsPass(entryOptions));
  LLVMLoweringOptions loweringOptions;
  auto [width, number] = getVectorRegisters();
  loweringOptions.vectorWidth = width;
  loweringOptions.vectorRegisters = number;
  buildLowerToLLVMPipeline(pm, loweringOptions);
  // Verifying large modules after each of these passes takes longer than the
  // passes; once has to do.
  pm.enableVerifier(false);
  if (failed(pm.run(*module)) || failed(verify(*module)))
    return makeFailure("cannot lower the module to LLVM");
  return llvm::Error::success();
}

llvm::Expected<std::unique_ptr<llvm::Module>> Compiler::translate() {
  std::unique_ptr<llvm::Module> result =
      translateModuleToLLVMIR(*module, llvmContext, options.name);
  if (!result)
    return makeFailure("cannot translate the module to LLVM IR");
  result->setDataLayout(target->createDataLayout());
  result->setTargetTriple(target->getTargetTriple());
  result->setPICLevel(llvm::PICLevel::BigPIC);

  llvm::LoopAnalysisManager loopAnalyses;
  llvm::FunctionAnalysisManager functionAnalyses;
  llvm::CGSCCAnalysisManager callGraphAnalyses;
  llvm::ModuleAnalysisManager moduleAnalyses;
  llvm::PassBuilder builder(target.get());
  builder.registerModuleAnalyses(moduleAnalyses);
  builder.registerCGSCCAnalyses(callGraphAnalyses);
  builder.registerFunctionAnalyses(functionAnalyses);
  builder.registerLoopAnalyses(loopAnalyses);
  builder.crossRegisterProxies(loopAnalyses, functionAnalyses,
                               callGraphAnalyses, moduleAnalyses);
  const llvm::OptimizationLevel levels[] = {
      llvm::OptimizationLevel::O0, llvm::OptimizationLevel::O1,
      llvm::OptimizationLevel::O2, llvm::OptimizationLevel::O3};
  llvm::OptimizationLevel level = levels[options.optLevel];
  llvm::ModulePassManager passes =
      level == llvm::OptimizationLevel::O0
          ? builder.buildO0DefaultPipeline(level)
          : builder.buildPerModuleDefaultPipeline(level);
  passes.run(*result, moduleAnalyses);
  return result;
}

llvm::Expected<llvm::SmallVector<char, 0>>
Compiler::emitObject(llvm::Module &llvmModule) {
  llvm::SmallVector<char, 0> object;
  llvm::raw_svector_ostream os(object);
  llvm::legacy::PassManager passes;
  if (target->addPassesToEmitFile(passes, os, /*DwoOut=*/nullptr,
                                  llvm::CodeGenFileType::ObjectFile))
    return makeError("LLVM cannot emit object files for " +
                     target->getTargetTriple().str());
  passes.run(llvmModule);
  return object;
}

llvm::Expected<llvm::SmallVector<char, 0>> Compiler::compile(StringRef path) {
  if (llvm::Error error = load(path))
    return error;
  if (llvm::Error error = lower())
    return error;
  llvm::Expected<std::unique_ptr<llvm::Module>> llvmModule = translate();
  if (!llvmModule)
    return llvmModule.takeError();
  return emitObject(**llvmModule);
}
