// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs the stages of Compiler.h. Host code goes through LLVM's optimizer and
// code generator here.

#include "ddphook/Compiler/Compiler.h"

#include "BFloatMoves.h"
#include "Kernels.h"
#include "NativeTarget.h"
#include "StageErrors.h"

#include "ddphook/Compiler/EntryPoints.h"
#include "ddphook/InitAll.h"

#include "mlir/IR/Verifier.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/Analysis/TargetTransformInfo.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/TargetParser/Host.h"

using namespace mlir;
using namespace mlir::ddp;

char DiagnosedError::ID = 0;

void mlir::ddp::registerCompilerDialects(DialectRegistry &registry) {
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  mlir::ddp::registerAllDialects(registry);
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  registerNVVMDialectTranslation(registry);
}

Compiler::Compiler(CompilerOptions options) : options(std::move(options)) {
  registerCompilerDialects(registry);
}

Compiler::~Compiler() = default;

llvm::Expected<std::unique_ptr<Compiler>>
Compiler::create(CompilerOptions options) {
  if (options.name.empty() || toCIdentifier(options.name) != options.name)
    return makeError("expected a C identifier as the module's name, but got '" +
                     options.name + "'");
  if (options.optLevel > 3)
    return makeError("expected an optimization level from 0 to 3, but got " +
                     llvm::Twine(options.optLevel));
  if (options.device == "cuda" && options.deviceArchitecture.empty())
    options.deviceArchitecture = "sm_80";
  else if (options.device != "cuda" && !options.deviceArchitecture.empty())
    return makeError("expected an architecture only for the device 'cuda', but "
                     "got '" +
                     options.deviceArchitecture + "' for '" + options.device +
                     "'");
  std::unique_ptr<Compiler> compiler(new Compiler(std::move(options)));
  if (llvm::Error error = compiler->createTarget())
    return error;
  return compiler;
}

llvm::Error Compiler::createTarget() {
  initializeTargets();
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

llvm::Error Compiler::runPipeline(ModuleOp module, DDPPipelineOptions &pipeline,
                                  PlanReporter *reporter) {
  if (getPlan(module))
    return makeError("expected a module without a plan, but ddp-pipeline has "
                     "already run on it");
  if (!pipeline.allFunctions.hasValue())
    pipeline.allFunctions = true;
  if (options.device != "host") {
    if (pipeline.memory.hasValue() && pipeline.memory == ArrayMemory::Host)
      return makeError("memory=host in the options of ddp-pipeline contradicts "
                       "the device '" +
                       options.device + "'");
    pipeline.memory = ArrayMemory::Device;
  }
  module.getContext()->appendDialectRegistry(registry);
  StageErrors errors(module.getContext());
  PassManager pm(module.getContext());
  buildDDPPipeline(pm, pipeline);
  if (reporter)
    reporter->attach(pm);
  if (failed(pm.run(module)))
    return errors.fail("ddp-pipeline failed");
  return llvm::Error::success();
}

llvm::Expected<std::string> Compiler::getHeader(ModuleOp module,
                                                StringRef source) {
  StageErrors errors(module.getContext());
  FailureOr<EntryPointTable> table = collectEntryPoints(module);
  if (failed(table))
    return errors.fail("the module's entry points have no C form");
  std::string text;
  llvm::raw_string_ostream os(text);
  writeHeader(os, options.name, source, *table);
  return text;
}

std::pair<unsigned, unsigned> Compiler::getVectorRegisters() {
  // The target only provides this information for a function.
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

LogicalResult Compiler::compileKernels(ModuleOp module) {
  FailureOr<std::string> code = kernelCompiler->compile(module);
  if (failed(code))
    return failure();
  if (code->empty())
    return success();
  OpBuilder b(module.getBodyRegion());
  // The driver expects a terminating null.
  std::string text = *code + '\0';
  LLVM::GlobalOp::create(b, module.getLoc(),
                         LLVM::LLVMArrayType::get(b.getI8Type(), text.size()),
                         /*isConstant=*/true, LLVM::Linkage::Internal,
                         kDeviceCodeGlobalName, b.getStringAttr(text));
  deviceCode = std::move(*code);
  return success();
}

llvm::Error Compiler::lower(ModuleOp module) {
  deviceCode.clear();
  if (!getPlan(module))
    return makeError("expected a module with a plan; run ddp-pipeline first");
  if (options.device != "host" && !usesDeviceMemory(module))
    return makeError("the module has a plan for host memory: expected one made "
                     "by ddp-pipeline with memory=device");
  module.getContext()->appendDialectRegistry(registry);
  StageErrors errors(module.getContext());
  PassManager pm(module.getContext());
  if (kernelCompiler) {
    if (failed(compileKernels(module)))
      return errors.fail("cannot generate kernels for the module");
    pm.addPass(createDDPLaunchKernelsPass());
  }
  LLVMLoweringOptions loweringOptions;
  loweringOptions.name = options.name;
  loweringOptions.shared = options.shared;
  loweringOptions.hasKernels = kernelCompiler != nullptr;
  auto [width, number] = getVectorRegisters();
  loweringOptions.vectorWidth = width;
  loweringOptions.vectorRegisters = number;
  buildLowerToLLVMPipeline(pm, loweringOptions);
  // Verifying large modules after each pass takes longer than the passes, so
  // verify once at the end.
  pm.enableVerifier(false);
  if (failed(pm.run(module)) || failed(verify(module)))
    return errors.fail("cannot lower the module to LLVM");
  return llvm::Error::success();
}

llvm::Expected<std::unique_ptr<llvm::Module>>
Compiler::translate(ModuleOp module) {
  StageErrors errors(module.getContext());
  std::unique_ptr<llvm::Module> result =
      translateModuleToLLVMIR(module, llvmContext, options.name);
  if (!result)
    return errors.fail("cannot translate the module to LLVM IR");
  result->setDataLayout(target->createDataLayout());
  result->setTargetTriple(target->getTargetTriple());
  result->setPICLevel(llvm::PICLevel::BigPIC);
  moveBFloatAsInteger(*result);

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

llvm::Expected<CompiledModule> Compiler::compile(ModuleOp module,
                                                 DDPPipelineOptions *pipeline) {
  if (!getPlan(module) || pipeline) {
    DDPPipelineOptions defaults;
    if (llvm::Error error =
            runPipeline(module, pipeline ? *pipeline : defaults))
      return error;
  }
  llvm::Expected<std::string> header = getHeader(module, options.name);
  if (!header)
    return header.takeError();
  if (llvm::Error error = lower(module))
    return error;
  llvm::Expected<std::unique_ptr<llvm::Module>> code = translate(module);
  if (!code)
    return code.takeError();
  llvm::Expected<llvm::SmallVector<char, 0>> object = emitObject(**code);
  if (!object)
    return object.takeError();
  return CompiledModule{options.name, std::move(*object), std::move(*header)};
}
