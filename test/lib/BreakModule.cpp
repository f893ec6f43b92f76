// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// test-break-module: renames the process groups and nothing that uses them, or,
// where a run before has done so, names them as they were.

#include "BreakModule.h"

#include "ddphook/Dialect/DDP/IR/DDP.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassRegistry.h"

using namespace mlir;
using namespace testhook;

namespace {
struct BreakModulePass
    : public PassWrapper<BreakModulePass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(BreakModulePass)

  StringRef getArgument() const override { return "test-break-module"; }
  StringRef getDescription() const override {
    return "Rename process groups and nothing that uses them, or undo that";
  }

  void runOnOperation() override {
    for (auto group : getOperation().getOps<ddp::ProcessGroupOp>()) {
      StringRef name = group.getSymName();
      group.setSymName(name.consume_front("lost_") ? name.str()
                                                   : ("lost_" + name).str());
    }
  }
};
} // namespace

void testhook::registerBreakModulePass() {
  PassRegistration<BreakModulePass>();
}
