// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// test-break-collectives: swaps the first two collectives of a function, or
// leaves the first one out, between two runs of ddp-verify-order that compare.

#include "BreakCollectives.h"

#include "ddphook/Dialect/DDP/Transforms/Passes.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"

using namespace mlir;
using namespace testhook;

namespace {
struct BreakPass : public PassWrapper<BreakPass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(BreakPass)
  explicit BreakPass(StringRef how) : how(how) {}
  BreakPass(const BreakPass &other) : PassWrapper(other), how(other.how) {}

  void runOnOperation() override {
    SmallVector<ddp::AllReduceOp> collectives;
    getOperation().walk(
        [&](ddp::AllReduceOp op) { collectives.push_back(op); });
    if (how == "swap") {
      collectives[1]->moveBefore(collectives[0]);
    } else if (how == "drop") {
      collectives[0].getResult().replaceAllUsesWith(collectives[0].getInput());
      collectives[0].erase();
    }
  }

  std::string how;
};

struct Options : public PassPipelineOptions<Options> {
  Option<std::string> how{*this, "how", llvm::cl::desc("swap, drop or nothing"),
                          llvm::cl::init("nothing")};
  Option<ddp::OrderAcrossPass> kept{
      *this, "kept", llvm::cl::desc("what the check expects to be kept"),
      llvm::cl::init(ddp::OrderAcrossPass::Everything),
      llvm::cl::values(
          clEnumValN(ddp::OrderAcrossPass::Nothing, "nothing", ""),
          clEnumValN(ddp::OrderAcrossPass::Members, "members", ""),
          clEnumValN(ddp::OrderAcrossPass::Elements, "elements", ""),
          clEnumValN(ddp::OrderAcrossPass::Everything, "everything", ""))};
};
} // namespace

void testhook::registerBreakCollectivesPipeline() {
  PassPipelineRegistration<Options>(
      "test-break-collectives",
      "Break the collectives between two runs of ddp-verify-order",
      [](OpPassManager &pm, const Options &options) {
        ddp::CollectiveHistory history = ddp::createCollectiveHistory();
        pm.addPass(ddp::createVerifyOrderAfterPass(
            history, "the parser", ddp::OrderAcrossPass::Nothing));
        pm.addPass(std::make_unique<BreakPass>(options.how));
        pm.addPass(ddp::createVerifyOrderAfterPass(
            history, "test-break-collectives", options.kept));
      });
}
