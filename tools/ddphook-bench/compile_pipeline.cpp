//===- compile_pipeline.cpp - the pipeline for ddphook-bench --------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Parses a module, runs the pipeline on it, and counts remaining operations.
//
//===----------------------------------------------------------------------===//
#include "compile_pipeline.h"

#include "ddphook/InitAll.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/raw_ostream.h"
#include <chrono>

using namespace mlir;
using ddphook::bench::PipelineRun;

static double now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

PipelineRun ddphook::bench::runPipeline(const std::string &text,
                                        const std::string &options) {
  DialectRegistry registry;
  registerAllDialects(registry);
  registerAllExtensions(registry);
  ddp::registerAllDialects(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  PipelineRun run;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    llvm::raw_string_ostream(run.error) << diagnostic << "; ";
    return success();
  });

  double start = now();
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, &context);
  run.parseSeconds = now() - start;
  if (!module)
    return run;

  // Production compilers run it without the verifier: checking after every pass
  // would take most of the time.
  PassManager pm(&context);
  pm.enableVerifier(false);
  if (failed(ddp::buildDDPPipeline(pm, options, [&](const Twine &message) {
        run.error += message.str();
        return failure();
      })))
    return run;
  start = now();
  if (failed(pm.run(*module)) && run.error.empty())
    run.error = "ddp-pipeline failed";
  run.passSeconds = now() - start;

  module->walk([&](Operation *op) {
    run.copies += isa<memref::CopyOp>(op);
    run.allocations += isa<memref::AllocOp, memref::AllocaOp>(op);
    if (auto call = dyn_cast<LLVM::CallOp>(op))
      run.collectives += call.getCallee() == "ddphook_rt_collective" ||
                         call.getCallee() == "ddphook_rt_collective_start";
  });
  return run;
}
