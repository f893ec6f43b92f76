// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The last pass of `ddp-lower-to-llvm`. In kernels, it also accepts operations
// of the NVVM dialect that read registers. There is one diagnostic per kind of
// operation: thousands of them would take longer than the compilation.

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "llvm/ADT/SmallPtrSet.h"

#define GEN_PASS_DEF_DDPCHECKLOWEREDPASS
#include "ddphook/Compiler/Passes.h"

using namespace mlir;

namespace {
struct CheckLoweredPass
    : public ddp::impl::DDPCheckLoweredPassBase<CheckLoweredPass> {
  void runOnOperation() override {
    llvm::SmallPtrSet<const void *, 8> reported;
    Operation *cast = nullptr;
    getOperation().walk([&](Operation *op) {
      if (isa<ModuleOp>(op) ||
          isa_and_present<LLVM::LLVMDialect, NVVM::NVVMDialect>(
              op->getDialect()))
        return;
      if (isa<UnrealizedConversionCastOp>(op)) {
        cast = op;
        return;
      }
      OperationName name = op->getName();
      if (!reported.insert(name.getAsOpaquePointer()).second)
        return;
      op->emitError() << "'" << name << "' has no lowering to LLVM";
      signalPassFailure();
    });
    // Upstream lowers copies that ddp-expand-copies cannot expand to this call.
    if (auto copy = getOperation().lookupSymbol<LLVM::LLVMFuncOp>("memrefCopy");
        copy && copy.isExternal()) {
      getOperation().emitError()
          << "'memref.copy' of unranked memory has no lowering to LLVM";
      signalPassFailure();
    }
    // Casts also remain around unconverted operations; do not report them then.
    if (!cast)
      return;
    if (reported.empty())
      cast->emitError() << "types were converted to LLVM in two different ways";
    signalPassFailure();
  }
};
} // namespace
