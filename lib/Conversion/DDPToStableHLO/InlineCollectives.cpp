// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-inline-collectives: inlines collectives into functions whose arguments
// can be states. Upstream's inliner does more: it also removes functions that
// only a stablehlo.composite refers to.

#include "ddphook/Dialect/DDP/IR/DDP.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Transforms/Inliner.h"
#include "mlir/Transforms/InliningUtils.h"

#define GEN_PASS_DEF_DDPINLINECOLLECTIVESPASS
#include "ddphook/Conversion/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
struct InlineCollectivesPass
    : public ddp::impl::DDPInlineCollectivesPassBase<InlineCollectivesPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    llvm::StringMap<unsigned> uses = countNames(module);
    if (failed(inlineAll(module)))
      return signalPassFailure();
    renameCopies(module, uses);
  }

  /// Counts how often each gradient name is used.
  static llvm::StringMap<unsigned> countNames(ModuleOp module) {
    llvm::StringMap<unsigned> uses;
    module.walk([&](AllReduceOp op) {
      if (auto name = op->getAttrOfType<StringAttr>(DDPDialect::kNameAttrName))
        ++uses[name.getValue()];
    });
    return uses;
  }

  /// Makes names unique for a reduction that was inlined several times.
  static void renameCopies(ModuleOp module,
                           const llvm::StringMap<unsigned> &given) {
    llvm::StringMap<unsigned> copies, taken = countNames(module);
    module.walk([&](AllReduceOp op) {
      auto name = op->getAttrOfType<StringAttr>(DDPDialect::kNameAttrName);
      // Names that were not unique before are the program's mistake.
      if (!name || given.lookup(name.getValue()) != 1 ||
          copies[name.getValue()]++ == 0)
        return;
      std::string unique;
      for (unsigned i = 1; unique.empty() || taken.contains(unique); ++i)
        unique = name.str() + "#" + std::to_string(i);
      taken[unique] = 1;
      op.setGradientName(unique);
    });
  }

  static LogicalResult inlineAll(ModuleOp module) {
    int64_t numCloned = 0;
    // After inlining, the callers contain collectives.
    while (true) {
      llvm::MapVector<func::CallOp, func::FuncOp> calls;
      module.walk([&](func::CallOp call) {
        auto callee = module.lookupSymbol<func::FuncOp>(call.getCallee());
        if (callee && hasDDPOps(callee))
          calls[call] = callee;
      });
      if (calls.empty())
        return success();
      llvm::SetVector<Operation *> callees;
      for (auto &[call, callee] : calls) {
        callee.walk([&](Operation *) { ++numCloned; });
        if (failed(checkSize(call, numCloned)) ||
            failed(inlineOne(call, callee)))
          return failure();
        callees.insert(callee);
      }
      for (Operation *callee : callees)
        if (cast<func::FuncOp>(callee).isPrivate() &&
            SymbolTable::symbolKnownUseEmpty(callee, module))
          callee->erase();
    }
  }

  /// A chain of functions, each calling the next twice, grows exponentially.
  static LogicalResult checkSize(func::CallOp call, int64_t numCloned) {
    constexpr int64_t maxCloned = 1 << 18;
    if (numCloned <= maxCloned)
      return success();
    return call.emitOpError()
           << "expected at most " << maxCloned
           << " more operations after functions with collectives are inlined";
  }

  static LogicalResult inlineOne(func::CallOp call, func::FuncOp callee) {
    if (callee->isProperAncestor(call))
      return call.emitOpError() << "expected no recursion in a function with "
                                   "collectives, @"
                                << callee.getSymName();
    InlinerInterface interface(call.getContext());
    InlinerConfig config;
    if (!callee.getBody().hasOneBlock() ||
        failed(inlineCall(interface, config.getCloneCallback(), call, callee,
                          callee.getCallableRegion())))
      return call.emitOpError() << "expected a call that can be inlined, since "
                                   "there are collectives in @"
                                << callee.getSymName();
    call.erase();
    return success();
  }
};
} // namespace
