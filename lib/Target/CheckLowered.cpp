//===- CheckLowered.cpp - fail unless only the LLVM dialect is left -------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The last pass of `ddp-lower-to-llvm`. One diagnostic per kind of operation:
// thousands of them would take longer than the compilation.
//
//===----------------------------------------------------------------------===//

#include "ddphook/Target/Passes.h"

#include "llvm/ADT/SmallPtrSet.h"

namespace mlir {
namespace ddp {
#define GEN_PASS_DEF_CHECKLOWEREDPASS
#include "ddphook/Target/Passes.h.inc"
} // namespace ddp
} // namespace mlir

using namespace mlir;

namespace {
class CheckLoweredPass
    : public ddp::impl::CheckLoweredPassBase<CheckLoweredPass> {
public:
  void runOnOperation() override {
    llvm::SmallPtrSet<const void *, 8> reported;
    getOperation().walk([&](Operation *op) {
      if (isa<ModuleOp>(op) ||
          isa_and_present<LLVM::LLVMDialect>(op->getDialect()))
        return;
      OperationName name = op->getName();
      if (!reported.insert(name.getAsOpaquePointer()).second)
        return;
      op->emitError() << "'" << name << "' has no lowering to LLVM";
      signalPassFailure();
    });
  }
};
} // namespace
