// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs the passes in order, as a whole and in two halves. docs/lowering.md
// gives the reasons for the order.

#include "ddphook/Pipelines/Pipelines.h"

#include "mlir/Dialect/Bufferization/Transforms/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
/// A pass manager that can check the effect of each pass on the collectives.
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

/// Adds the passes from gradients to expanded hooks. How much passes through a
/// hook together depends on caches, so the pipeline to memory decides it.
static void addHookPasses(CheckedPassManager &pm, const DDPHookOptions &options,
                          double groupMb) {
  if (options.topology.hasValue())
    pm.addPass(createDDPSetTopologyPass({options.topology}));
  pm.addPass(createDDPVerifySyncPass());
  pm.addPass(createDDPExpandAveragesPass(), OrderAcrossPass::Nothing);
  if (options.exempt.hasValue() || options.exemptHook.hasValue())
    pm.addPass(
        createDDPExemptGradientsPass({options.exempt, options.exemptHook}));
  pm.addPass(createDDPBucketizePass(
                 {options.bucketCapMb, options.firstBucketMb, options.order}),
             OrderAcrossPass::Members);
  pm.addPass(createDDPExpandHooksPass({options.hook, options.wrapper, groupMb}),
             OrderAcrossPass::Recorded);
  if (options.packCollectives)
    pm.addPass(createDDPPackCollectivesPass(), OrderAcrossPass::Elements);
}

/// Returns the limit of what passes through a hook together by default.
static double getDefaultGroupMb(const DDPTensorOptions &options,
                                ArrayMemory memory) {
  // A device's caches hold whole buckets, and each collective is a launch
  // there. Unpacked collectives are for users who want PyTorch's order of sums.
  return memory == ArrayMemory::Device || !options.packCollectives
             ? 0
             : kDefaultGroupMb;
}

static void addTensorPasses(CheckedPassManager &pm,
                            const DDPTensorOptions &options,
                            ArrayMemory memory) {
  addHookPasses(pm, options,
                options.groupMb == kUnsetLimit
                    ? getDefaultGroupMb(options, memory)
                    : options.groupMb.getValue());
  if (options.fuse)
    pm.addPass(createDDPFusePass());
  if (options.overlap) {
    if (options.interleave) {
      // Enough to hide collectives in flight, without keeping all buckets.
      unsigned limit = 4 * std::min(4u, options.overlapDepth.getValue());
      pm.addPass(createDDPMergeBranchesPass({limit}),
                 OrderAcrossPass::Elements);
    }
    pm.addPass(createDDPOverlapPass({options.overlapDepth, options.interleave}),
               OrderAcrossPass::Elements);
  }

  pm.addNestedPass<func::FuncOp>(createDDPLegalizeForBufferizationPass());
  pm.addPass(createDDPFlattenPass());
  pm.addPass(createDDPThreadStatesPass());
  pm.addPass(createDDPPrepareEntriesPass());
  pm.addPass(createDDPFoldResultsPass());
  pm.addNestedPass<func::FuncOp>(createDDPFoldPacksPass());
  pm.addNestedPass<func::FuncOp>(createDDPSplitEmptyTensorsPass());
  pm.addNestedPass<func::FuncOp>(createDDPAssignDestinationsPass());
  pm.addNestedPass<func::FuncOp>(createDDPYieldInPlacePass());
  pm.addNestedPass<func::FuncOp>(createDDPPinBlockArgumentsPass());
  pm.addNestedPass<func::FuncOp>(createDDPMaterializeBucketsPass());
  pm.addPass(createDDPCheckBufferizablePass());
}

static void addMemoryPasses(CheckedPassManager &pm,
                            const DDPMemoryOptions &options) {
  // Copies of a buffer onto itself are found once CSE has merged equal views.
  pm.addPass(createDDPFoldBranchesPass());
  pm.addPass(createCSEPass());
  pm.addPass(createDDPFoldCopiesPass());
  pm.addPass(createDDPResultsToOutParamsPass());
  pm.addPass(createDDPPlanArenaPass());
  pm.addPass(createDDPFoldCopiesPass());
  if (options.requireNoCopy)
    pm.addPass(createDDPCheckNoAllocPass());
  pm.addPass(createConvertDDPToRuntimePass({options.memory}));
}

/// Adds passes that only see functions with collectives, unless the options ask
/// for all functions.
static void addIsolated(OpPassManager &pm, const DDPCommonOptions &options,
                        function_ref<void(CheckedPassManager &)> addPasses) {
  DDPIsolateCollectivesPassOptions isolate;
  isolate.allFunctions = options.allFunctions;
  isolate.pipeline.emplace_back(ModuleOp::getOperationName());
  CheckedPassManager checked(isolate.pipeline.back(), options.verifyOrder);
  addPasses(checked);
  pm.addPass(createDDPIsolateCollectivesPass(isolate));
}

void mlir::ddp::buildDDPPipeline(OpPassManager &pm,
                                 const DDPPipelineOptions &options) {
  // It also applies to functions without collectives.
  pm.addPass(createDDPWidenAccumulatorsPass());
  addIsolated(pm, options, [&](CheckedPassManager &isolated) {
    addTensorPasses(isolated, options, options.memory);
    isolated.addPass(createDDPBufferizePass());
    addMemoryPasses(isolated, options);
  });
}

void mlir::ddp::buildDDPTensorPipeline(OpPassManager &pm,
                                       const DDPTensorOptions &options) {
  pm.addPass(createDDPWidenAccumulatorsPass());
  addIsolated(pm, options, [&](CheckedPassManager &isolated) {
    addTensorPasses(isolated, options, ArrayMemory::Host);
  });
}

void mlir::ddp::buildDDPMemoryPipeline(OpPassManager &pm,
                                       const DDPMemoryOptions &options) {
  addIsolated(pm, options, [&](CheckedPassManager &isolated) {
    addMemoryPasses(isolated, options);
  });
}

void mlir::ddp::buildDDPStableHLOPipeline(
    OpPassManager &pm, const DDPStableHLOPipelineOptions &options) {
  // States become arguments of the function that XLA calls.
  pm.addPass(createDDPInlineCollectivesPass());
  addIsolated(pm, options, [&](CheckedPassManager &isolated) {
    addHookPasses(isolated, options, /*groupMb=*/0);
    // XLA hangs if ranks branch differently.
    isolated.addPass(createDDPVerifyStableHLOOrderPass());
  });
  DDPExportStableHLOPassOptions xla;
  xla.numRanks = options.numRanks;
  xla.manifestPath = options.manifest;
  pm.addPass(createDDPExportStableHLOPass(xla));
}

/// The last message of `rejectValue` in this thread.
static thread_local std::string rejection;

bool mlir::ddp::rejectValue(StringRef option, const Twine &expected,
                            StringRef value) {
  rejection = ("expected " + option + " to be " + expected + ", but got '" +
               value + "'")
                  .str();
  return false;
}

DDPCommonOptions::HookOption &
DDPCommonOptions::HookOption::operator=(StringRef text) {
  setValue(text.str());
  optHasValue = true;
  return *this;
}

DDPCommonOptions::HookOption &
DDPCommonOptions::HookOption::operator=(HookAttrInterface hook) {
  if (!hook)
    return *this = kDefaultHook;
  std::string text;
  llvm::raw_string_ostream(text) << Attribute(hook);
  return *this = StringRef(text);
}

LogicalResult DDPCommonOptions::parse(
    StringRef options,
    function_ref<LogicalResult(const Twine &)> errorHandler) {
  auto isDeclared = [&](StringRef name) { return OptionsMap.contains(name); };
  auto reject = [&](const Twine &reason) {
    return errorHandler("in the options of " + pipeline + ": " + reason);
  };
  FailureOr<std::string> normalized =
      normalizeOptions(options, isDeclared, reject);
  if (failed(normalized))
    return failure();
  rejection.clear();
  std::string message;
  llvm::raw_string_ostream os(message);
  if (succeeded(parseFromString(*normalized, os)))
    return success();
  return reject(explainOptionError(rejection.empty() ? message : rejection,
                                   llvm::to_vector(OptionsMap.keys())));
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

LogicalResult mlir::ddp::checkRunsOnModules(
    OpPassManager &pm, StringRef pipeline,
    function_ref<LogicalResult(const Twine &)> errorHandler) {
  std::optional<StringRef> found = pm.getOpName();
  StringRef expected = ModuleOp::getOperationName();
  if (!found || *found == expected ||
      pm.getNesting() == OpPassManager::Nesting::Implicit)
    return success();
  return errorHandler("expected " + pipeline + " to run on '" + expected +
                      "', but got '" + *found + "'");
}

/// Registers a pipeline whose options are read by parse() above.
template <typename OptionsT, typename BuildT>
static void registerPipeline(StringRef name, StringRef description,
                             BuildT build) {
  registerPassPipeline(
      name, description,
      [build, name](OpPassManager &pm, StringRef text,
                    function_ref<LogicalResult(const Twine &)> errorHandler) {
        OptionsT options;
        if (failed(checkRunsOnModules(pm, name, errorHandler)) ||
            failed(options.parse(text, errorHandler)))
          return failure();
        build(pm, options);
        return success();
      },
      [](function_ref<void(const mlir::detail::PassOptions &)> optHandler) {
        optHandler(OptionsT());
      });
}

void mlir::ddp::registerDDPPipelines() {
  registerPipeline<DDPPipelineOptions>(
      "ddp-pipeline",
      "Lower ddp.all_reduce to calls of the ddphook runtime: bucketize, expand "
      "hooks, bufferize without copies, plan memory, emit calls and the plan",
      [](OpPassManager &pm, const DDPPipelineOptions &options) {
        buildDDPPipeline(pm, options);
      });
  registerPipeline<DDPTensorPipelineOptions>(
      "ddp-tensor-pipeline",
      "The first half of ddp-pipeline, before bufferization: bucketize, expand "
      "hooks, assign destinations",
      buildDDPTensorPipeline);
  registerPipeline<DDPMemoryPipelineOptions>(
      "ddp-memory-pipeline",
      "The second half of ddp-pipeline, after bufferization: plan memory, emit "
      "calls and the plan",
      buildDDPMemoryPipeline);
  registerPipeline<DDPStableHLOPipelineOptions>(
      "ddp-stablehlo-pipeline",
      "Lower ddp.all_reduce to StableHLO for XLA: bucketize, expand hooks, "
      "export",
      buildDDPStableHLOPipeline);
}
