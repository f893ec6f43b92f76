// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Links ddphook through find_package(DDPHook), builds a step in memory,
// compiles it with a hook of ddphook's and with one of its own, and runs it in
// this process. docs/embedding.md explains these functions.

#include "MyHook.h"

#include "ddphook/Compiler/Compiler.h"
#include "ddphook/Compiler/JitModule.h"
#include "ddphook/Compiler/Passes.h"
#include "ddphook/Compiler/SharedObject.h"
#include "ddphook/runtime/runtime.h"

#include "mlir/Dialect/Bufferization/Transforms/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

// What a front end makes: a gradient, averaged over all ranks.
static OwningOpRef<ModuleOp> buildStep(MLIRContext &context) {
  context.loadDialect<ddp::DDPDialect, func::FuncDialect>();
  OpBuilder builder(&context);
  Location loc = builder.getUnknownLoc();
  OwningOpRef<ModuleOp> module(ModuleOp::create(loc));
  builder.setInsertionPointToEnd(module->getBody());
  auto group = ddp::ProcessGroupOp::create(builder, loc, "dp");
  auto type = RankedTensorType::get({64, 32}, builder.getF32Type());
  auto step = func::FuncOp::create(builder, loc, "step",
                                   builder.getFunctionType({type}, {type}));
  builder.setInsertionPointToStart(step.addEntryBlock());
  auto mean =
      ddp::AllReduceOp::create(builder, loc, step.getArgument(0), group);
  mean.setGradientName("layer.weight");
  func::ReturnOp::create(builder, loc, mean.getResult());
  return module;
}

// From the module to object code, with PowerSGD.
static llvm::Expected<ddp::CompiledModule> compileStep(ModuleOp module) {
  ddp::PowerSGDHookAttr::Parameters parameters;
  parameters.matrix_approximation_rank = 2;
  ddp::DDPPipelineOptions pipeline;
  pipeline.hook = ddp::PowerSGDHookAttr::get(module.getContext(), parameters);
  pipeline.bucketCapMb = 25;

  ddp::CompilerOptions options;
  options.name = "model";
  auto compiler = ddp::Compiler::create(options);
  if (!compiler)
    return compiler.takeError();
  return (*compiler)->compile(module, &pipeline);
}

// The code in this process, on as many ranks as the launcher started.
static llvm::Error runStep(const ddp::CompiledModule &compiled,
                           ArrayRef<float> gradient,
                           MutableArrayRef<float> mean) {
  auto code = ddp::JitModule::load(compiled);
  if (!code)
    return code.takeError();
  ddphook_context_t *job = nullptr;
  if (ddphook_context_create(nullptr, &job) != DDPHOOK_OK)
    return llvm::createStringError(ddphook_last_error());
  ddphook_status_t status = ddphook_module_load(job, &(*code)->get());
  if (status == DDPHOOK_OK) {
    void *buffers[] = {const_cast<float *>(gradient.data()), mean.data()};
    status = (*code)->findEntry("step")->invoke(buffers);
  }
  llvm::Error error = status == DDPHOOK_OK
                          ? llvm::Error::success()
                          : llvm::createStringError(ddphook_last_error());
  // Unloads the module, too; only then may its code go.
  ddphook_context_destroy(job);
  return error;
}

// A pipeline that bufferizes all of a module in one place.
static void buildMyPipeline(OpPassManager &pm,
                            const ddp::DDPPipelineOptions &options) {
  ddp::buildDDPTensorPipeline(pm, options);
  bufferization::OneShotBufferizePassOptions bufferize;
  bufferize.bufferizeFunctionBoundaries = true;
  bufferize.functionBoundaryTypeConversion =
      bufferization::LayoutMapOption::IdentityLayoutMap;
  pm.addPass(bufferization::createOneShotBufferizePass(bufferize));
  ddp::buildDDPMemoryPipeline(pm, options);
}

// Our hook's scaling, and the reduction behind it.
static bool runMyHook(MLIRContext &context) {
  OwningOpRef<ModuleOp> module = buildStep(context);
  context.loadDialect<my::MyDialect>();
  ddp::DDPPipelineOptions options;
  options.hook = my::PrescaledHookAttr::get(&context);
  PassManager pm(&context);
  buildMyPipeline(pm, options);
  ddp::LLVMLoweringOptions lowering;
  lowering.name = "model";
  ddp::buildLowerToLLVMPipeline(pm, lowering);
  if (failed(pm.run(*module)))
    return false;
  bool scales = module->lookupSymbol("ddphook_rt_scale");
  bool reduces = module->lookupSymbol("ddphook_rt_collective");
  bool isEntry = module->lookupSymbol("model_step");
  if (!scales || !reduces || !isEntry)
    llvm::errs() << "expected calls to scale and to all-reduce, and an entry "
                    "point, in\n"
                 << *module;
  return scales && reduces && isEntry;
}

static llvm::Error run() {
  DialectRegistry registry;
  ddp::registerCompilerDialects(registry);
  registry.insert<my::MyDialect>();
  MLIRContext context(registry);
  OwningOpRef<ModuleOp> module = buildStep(context);
  llvm::Expected<ddp::CompiledModule> compiled = compileStep(*module);
  if (!compiled)
    return compiled.takeError();

  // Before its first compressed iteration PowerSGD reduces everything: with one
  // rank, the mean is the gradient.
  std::vector<float> gradient(64 * 32), mean(64 * 32);
  for (size_t i = 0; i < gradient.size(); ++i)
    gradient[i] = 0.25f * static_cast<float>(i);
  if (llvm::Error error = runStep(*compiled, gradient, mean))
    return error;
  if (mean != gradient)
    return llvm::createStringError("expected the gradient as its own mean");

  StringRef object(compiled->object.data(), compiled->object.size());
  auto shared = ddp::linkSharedObject(object);
  if (!shared)
    return shared.takeError();
  if (!StringRef(shared->data(), shared->size())
           .starts_with("\x7f"
                        "ELF"))
    return llvm::createStringError("expected a shared object");
  if (!runMyHook(context))
    return llvm::createStringError("the hook of the dialect `my` failed");
  return llvm::Error::success();
}

int main() {
  if (llvm::Error error = run()) {
    // Empty: a diagnostic has said it.
    llvm::errs() << toString(std::move(error)) << '\n';
    return 1;
  }
  llvm::outs() << "compiler consumer: ok\n";
  return 0;
}
