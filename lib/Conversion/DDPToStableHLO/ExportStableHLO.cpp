// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-export-stablehlo: exports modules with expanded hooks for XLA.

#include "ExportFunction.h"

#define GEN_PASS_DEF_DDPEXPORTSTABLEHLOPASS
#include "ddphook/Conversion/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

/// Returns the first channel after those that the program uses itself.
static FailureOr<int64_t> getNextChannel(ModuleOp module) {
  // Leaves space for more reductions than a program has.
  constexpr int64_t maxHandle = int64_t(1) << 62;
  int64_t next = 1;
  WalkResult result = module.walk([&](Operation *op) {
    Attribute handle = op->getAttr("channel_handle");
    if (!handle)
      return WalkResult::advance();
    std::string text;
    llvm::raw_string_ostream(text) << handle;
    StringRef digits = StringRef(text).split("<handle = ").second;
    int64_t number = 0;
    if (digits.consumeInteger(10, number) || number > maxHandle) {
      op->emitOpError() << "expected a channel_handle of at most " << maxHandle
                        << ", but got " << handle;
      return WalkResult::interrupt();
    }
    next = std::max(next, number + 1);
    return WalkResult::advance();
  });
  if (result.wasInterrupted())
    return failure();
  return next;
}

/// Rejects states in called functions: XLA passes arguments to the entry only.
static LogicalResult checkCalls(ModuleOp module) {
  llvm::DenseMap<StringRef, func::CallOp> calls;
  module.walk([&](func::CallOp call) { calls[call.getCallee()] = call; });
  for (auto function : module.getOps<func::FuncOp>()) {
    auto call = calls.find(function.getSymName());
    if (call == calls.end())
      continue;
    WalkResult result = function.walk([&](Operation *op) {
      if (!isa<LoadOp, StoreOp>(op))
        return WalkResult::advance();
      InFlightDiagnostic diagnostic =
          op->emitOpError() << "expected no state in a function that is "
                               "called; run 'ddp-inline-collectives'";
      diagnostic.attachNote(call->second.getLoc()) << "it is called here";
      return WalkResult::interrupt();
    });
    if (result.wasInterrupted())
      return failure();
  }
  return success();
}

namespace {
struct ExportStableHLOPass
    : public ddp::impl::DDPExportStableHLOPassBase<ExportStableHLOPass> {
  using DDPExportStableHLOPassBase::DDPExportStableHLOPassBase;

  /// The caller decides whether the dialect is StableHLO's own or a stand-in.
  /// It may not be loaded yet if the module has none of its operations.
  LogicalResult initialize(MLIRContext *context) override {
    if (context->getOrLoadDialect("stablehlo") ||
        context->allowsUnregisteredDialects())
      return success();
    return emitError(UnknownLoc::get(context))
           << "'ddp-export-stablehlo' needs a dialect 'stablehlo'";
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (numRanks < 0) {
      module.emitError() << "expected num-ranks to be at least 1, but got "
                         << numRanks.getValue();
      return signalPassFailure();
    }
    ListedGroups groups(module, numRanks);
    if (failed(groups.init()) || failed(checkCalls(module)) ||
        failed(exportFunctions(module, groups)))
      return signalPassFailure();
  }

  LogicalResult exportFunctions(ModuleOp module, const ListedGroups &groups) {
    Manifest manifest;
    manifest.numRanks = groups.getNumRanks();
    FailureOr<int64_t> nextChannel = getNextChannel(module);
    if (failed(nextChannel))
      return failure();
    ExportContext context{module, groups, *nextChannel, manifest};
    SmallVector<Operation *> symbols;
    // Functions added on the way are already in StableHLO.
    for (Operation &op : llvm::make_early_inc_range(llvm::make_range(
             module.getBody()->begin(), module.getBody()->end()))) {
      if (auto function = dyn_cast<func::FuncOp>(op)) {
        if (failed(FunctionExporter(context, function).run()))
          return failure();
      } else if (isa<ProcessGroupOp, StateOp, BucketInfoOp>(op)) {
        symbols.push_back(&op);
        if (auto bucket = dyn_cast<BucketInfoOp>(op))
          manifest.buckets.push_back(bucket);
      } else if (!isXLADialect(op.getName().getDialectNamespace())) {
        return op.emitOpError() << "has no form in StableHLO";
      }
    }
    if (!manifestPath.empty() &&
        failed(writeManifest(manifest, module, manifestPath)))
      return failure();
    if (manifestPath.empty() && !manifest.functions.empty())
      return module.emitError()
             << "expected a file for the states of @"
             << manifest.functions.front().first << "; set manifest";
    for (Operation *symbol : symbols)
      symbol->erase();
    // StableHLO's parser does not know them.
    module.walk([](Operation *op) { removeDDPAttrs(op); });
    return success();
  }
};
} // namespace
