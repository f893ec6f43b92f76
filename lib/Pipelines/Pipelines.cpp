//===- Pipelines.cpp -------------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs the passes in order. docs/lowering.md gives the reasons for the order.
//
//===----------------------------------------------------------------------===//

#include "ddphook/Pipelines/Pipelines.h"

#include "mlir/Dialect/Bufferization/Transforms/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/Support/Format.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
/// A pass manager that checks after each pass what the pass did to the
/// collectives, if it is asked to.
class CheckedPassManager {
public:
  CheckedPassManager(OpPassManager &pm, bool verifyOrder) : pm(pm) {
    if (verifyOrder)
      history = createCollectiveHistory();
  }

  void addPass(std::unique_ptr<Pass> pass,
               OrderAcrossPass kept = OrderAcrossPass::Everything) {
    StringRef name = pass->getArgument();
    pm.addPass(std::move(pass));
    if (history)
      pm.addPass(createVerifyOrderAfterPass(history, name, kept));
  }
  template <typename OpTy>
  void addNestedPass(std::unique_ptr<Pass> pass) {
    StringRef name = pass->getArgument();
    pm.addNestedPass<OpTy>(std::move(pass));
    if (history)
      pm.addPass(createVerifyOrderAfterPass(history, name,
                                            OrderAcrossPass::Everything));
  }

private:
  OpPassManager &pm;
  CollectiveHistory history;
};
} // namespace

/// Tensors to memory. `ddp-prepare-entries` has made the public functions'
/// interfaces; what is left to bufferize across are private functions.
static void addBufferization(CheckedPassManager &pm) {
  pm.addPass(createDDPCheckBufferizablePass());
  pm.addPass(createDDPBufferizePass());
  // A copy of a buffer onto itself is one only once equal views are one value.
  pm.addPass(createCSEPass());
  pm.addPass(createDDPFoldCopiesPass());
  pm.addPass(createDDPResultsToOutParamsPass());
}

static void addPasses(OpPassManager &passManager,
                      const DDPPipelineOptions &options) {
  CheckedPassManager pm(passManager, options.verifyOrder);
  pm.addPass(createDDPVerifySyncPass());
  pm.addPass(createDDPExpandAveragesPass(), OrderAcrossPass::Nothing);
  DDPBucketizePassOptions bucketize;
  bucketize.bucketCapMb = options.bucketCapMb;
  bucketize.firstBucketMb = options.firstBucketMb;
  bucketize.order = options.order;
  pm.addPass(createDDPBucketizePass(bucketize), OrderAcrossPass::Members);
  DDPExpandHooksPassOptions expand;
  expand.hook = options.hook;
  expand.wrapper = options.wrapper;
  expand.groupMb = options.groupMb;
  pm.addPass(createDDPExpandHooksPass(expand), OrderAcrossPass::Recorded);
  if (options.packCollectives)
    pm.addPass(createDDPPackCollectivesPass(), OrderAcrossPass::Elements);
  if (options.fuse)
    pm.addPass(createDDPFusePass());
  if (options.overlap) {
    // Enough to find work for what is in flight, without keeping all buckets.
    DDPMergeBranchesPassOptions merge;
    merge.limit = 4 * std::min(4u, options.overlapDepth.getValue());
    pm.addPass(createDDPMergeBranchesPass(merge), OrderAcrossPass::Elements);
    DDPOverlapPassOptions overlap;
    overlap.depth = options.overlapDepth;
    pm.addPass(createDDPOverlapPass(overlap), OrderAcrossPass::Elements);
  }

  pm.addNestedPass<func::FuncOp>(createDDPLegalizeForBufferizationPass());
  pm.addPass(createDDPFlattenPass());
  pm.addPass(createDDPThreadStatesPass());
  pm.addPass(createDDPPrepareEntriesPass());
  pm.addPass(createDDPFoldResultsPass());
  pm.addNestedPass<func::FuncOp>(createDDPSplitEmptyTensorsPass());
  pm.addNestedPass<func::FuncOp>(createDDPAssignDestinationsPass());
  pm.addNestedPass<func::FuncOp>(createDDPYieldInPlacePass());
  pm.addNestedPass<func::FuncOp>(createDDPPinBlockArgumentsPass());
  pm.addNestedPass<func::FuncOp>(createDDPMaterializeBucketsPass());
  addBufferization(pm);
  pm.addPass(createDDPPlanArenaPass());
  pm.addPass(createDDPFoldCopiesPass());
  if (options.requireNoCopy)
    pm.addPass(createDDPCheckNoAllocPass());
  ConvertDDPToRuntimePassOptions runtime;
  runtime.memory = options.memory;
  pm.addPass(createConvertDDPToRuntimePass(runtime));
}

void mlir::ddp::buildDDPPipeline(OpPassManager &pm,
                                 const DDPPipelineOptions &options) {
  DDPIsolateCollectivesPassOptions isolate;
  isolate.allFunctions = options.allFunctions;
  isolate.pipeline.emplace_back(ModuleOp::getOperationName());
  addPasses(isolate.pipeline.back(), options);
  pm.addPass(createDDPIsolateCollectivesPass(isolate));
}

/// What `rejectValue` was told last, in this thread.
static thread_local std::string rejection;

bool mlir::ddp::rejectValue(StringRef option, const Twine &expected,
                            StringRef value) {
  rejection = ("expected " + option + " to be " + expected + ", but got '" +
               value + "'")
                  .str();
  return false;
}

LogicalResult DDPPipelineOptions::parse(
    StringRef options,
    function_ref<LogicalResult(const Twine &)> errorHandler) {
  auto isDeclared = [&](StringRef name) { return OptionsMap.contains(name); };
  auto reject = [&](const Twine &reason) {
    return errorHandler("in the options of ddp-pipeline: " + reason);
  };
  FailureOr<std::string> normalized =
      normalizeOptions(options, isDeclared, reject);
  if (failed(normalized))
    return failure();
  rejection.clear();
  std::string message;
  llvm::raw_string_ostream os(message);
  bool isOk = succeeded(parseFromString(*normalized, os));
  if (isOk && !(groupMb >= 0)) {
    std::string value;
    llvm::raw_string_ostream(value) << llvm::format("%g", groupMb.getValue());
    isOk = rejectValue("group-mb", "at least 0", value);
  }
  if (isOk)
    return success();
  StringRef reason = rejection.empty() ? message : rejection;
  return reject(reason.trim());
}

LogicalResult mlir::ddp::buildDDPPipeline(
    OpPassManager &pm, StringRef options,
    function_ref<LogicalResult(const Twine &)> errorHandler) {
  DDPPipelineOptions parsed;
  if (failed(parsed.parse(options, errorHandler)))
    return failure();
  buildDDPPipeline(pm, parsed);
  return success();
}

void mlir::ddp::registerDDPPipelines() {
  registerPassPipeline(
      "ddp-pipeline",
      "From ddp.all_reduce to calls of the ddphook runtime: bucketize, expand "
      "hooks, bufferize without copies, plan memory, emit calls and plan",
      [](OpPassManager &pm, StringRef options,
         function_ref<LogicalResult(const Twine &)> errorHandler) {
        return buildDDPPipeline(pm, options, errorHandler);
      },
      [](function_ref<void(const mlir::detail::PassOptions &)> optHandler) {
        optHandler(DDPPipelineOptions());
      });
}
