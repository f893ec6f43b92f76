//===- Pipelines.cpp -------------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Puts the passes in order. Why this order: docs/lowering.md.
//
//===----------------------------------------------------------------------===//

#include "ddphook/Pipelines/Pipelines.h"

#include "mlir/Dialect/Bufferization/Transforms/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"

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
#define DDP_HOOK_PARAMETER(field, option, description)                         \
  expand.field = options.field;
#include "ddphook/Dialect/DDP/Transforms/HookParameters.def"
  pm.addPass(createDDPExpandHooksPass(expand), OrderAcrossPass::Recorded);
  if (options.packCollectives)
    pm.addPass(createDDPPackCollectivesPass(), OrderAcrossPass::Elements);
  if (options.fuse)
    pm.addPass(createDDPFusePass());

  if (options.groupMb > 0) {
    DDPGroupMatricesPassOptions group;
    group.groupMb = options.groupMb;
    // Half of what is in flight are Ps, the other half Qs.
    if (options.overlap)
      group.distance = (options.overlapDepth + 1) / 2;
    pm.addPass(createDDPGroupMatricesPass(group), OrderAcrossPass::Elements);
  }

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
  pm.addNestedPass<func::FuncOp>(createDDPBucketViewsPass());
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

/// What is wrong with an option's value, or nothing. LLVM's option parser knows
/// too, but prints it straight to stderr, where no caller can catch it.
static std::string checkValue(StringRef name, StringRef value) {
  auto mismatch = [&](StringRef expected) {
    return ("expected " + name + " to be " + expected + ", but got '" + value +
            "'")
        .str();
  };
  double number;
  if (llvm::is_contained({"bucket-cap-mb", "first-bucket-mb", "group-mb"},
                         name) &&
      value.getAsDouble(number))
    return mismatch("a number");
  if (name == "group-mb" && !(number >= 0))
    return mismatch("at least 0");
  if (unsigned depth;
      name == "overlap-depth" && (value.getAsInteger(10, depth) || depth == 0))
    return mismatch("a number of at least 1");
  if (name == "order" &&
      !llvm::is_contained({"ready", "forward", "reverse"}, value))
    return mismatch("ready, forward or reverse");
  if (name == "memory" && !llvm::is_contained({"host", "device"}, value))
    return mismatch("host or device");
  if (llvm::is_contained({"all-functions", "fuse", "overlap",
                          "pack-collectives", "require-no-copy",
                          "verify-order"},
                         name) &&
      !value.empty() &&
      !llvm::is_contained({"true", "false", "1", "0"}, value.lower()))
    return mismatch("true or false");
  return "";
}

LogicalResult mlir::ddp::buildDDPPipeline(
    OpPassManager &pm, StringRef options,
    function_ref<LogicalResult(const Twine &)> errorHandler) {
  std::string normalized = normalizeOptionSpelling(options);
  SmallVector<StringRef> words;
  StringRef(normalized).split(words, ' ', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  for (StringRef word : words) {
    auto [name, value] = word.split('=');
    if (std::string wrong = checkValue(name, value.trim("'\"")); !wrong.empty())
      return errorHandler("in the options of ddp-pipeline: " + wrong);
  }

  DDPPipelineOptions parsed;
  std::string message;
  llvm::raw_string_ostream os(message);
  if (failed(parsed.parseFromString(normalized, os)))
    return errorHandler("in the options of ddp-pipeline: " +
                        StringRef(message).trim());
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
