// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-inline-collectives: inlines collectives into functions whose arguments
// can be states. Upstream's inliner does more: it also removes functions that
// only a stablehlo.composite refers to.

#include "../Utils/InlineFunctions.h"
#include "ddphook/Dialect/DDP/IR/DDP.h"

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
    auto isOurs = [](Operation *op) {
      return isa_and_nonnull<DDPDialect>(op->getDialect());
    };
    if (failed(inlineFunctionsWith(module, isOurs, "collectives")))
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
};
} // namespace
