// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rejects modules for a device whose host code would itself read or write the
// arrays: at run time it would crash without a message. There is one diagnostic
// per kind of operation, as in CheckLowered.cpp.

#include "ddphook/Dialect/DDP/IR/Plan.h"

#include "mlir/Interfaces/CallInterfaces.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "llvm/ADT/SmallPtrSet.h"

#define GEN_PASS_DEF_DDPCHECKDEVICEMEMORYPASS
#include "ddphook/Compiler/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
bool isMemRef(Value value) { return isa<BaseMemRefType>(value.getType()); }

/// Returns true if `memref` is (a view of) a constant of the module, which is
/// in host memory.
bool isConstantArray(Value memref) {
  if (!isMemRef(memref))
    return false;
  while (auto view = memref.getDefiningOp<ViewLikeOpInterface>())
    memref = view.getViewSource();
  return memref.getDefiningOp<memref::GetGlobalOp>() != nullptr;
}

/// Returns true if `op` only passes memrefs on or reads their shapes.
bool passesOn(Operation *op) {
  return isa<CallOpInterface, RegionBranchOpInterface, gpu::LaunchFuncOp>(op) ||
         op->hasTrait<OpTrait::IsTerminator>() || isMemoryEffectFree(op);
}

struct CheckDeviceMemoryPass
    : public ddp::impl::DDPCheckDeviceMemoryPassBase<CheckDeviceMemoryPass> {
  using DDPCheckDeviceMemoryPassBase::DDPCheckDeviceMemoryPassBase;

  void runOnOperation() override {
    if (!usesDeviceMemory(getOperation()))
      return;
    getOperation().walk<WalkOrder::PreOrder>([&](Operation *op) {
      // Kernels run on the device.
      if (isa<gpu::GPUModuleOp>(op))
        return WalkResult::skip();
      // Report only the first operation of a kind.
      if (!reported.contains(op->getName().getAsOpaquePointer()))
        check(op);
      return WalkResult::advance();
    });
  }

private:
  void check(Operation *op) {
    if (isa<memref::ExtractAlignedPointerAsIndexOp, CallOpInterface,
            gpu::LaunchFuncOp>(op) &&
        llvm::any_of(op->getOperands(), isConstantArray)) {
      report(op) << "a constant array is passed on as device memory: "
                    "expected a linalg operation to copy it first";
      return;
    }
    if (passesOn(op))
      return;
    if (llvm::any_of(op->getResults(), isMemRef)) {
      report(op)
          << "'" << op->getName()
          << "' needs host memory, which a module for a device does not use";
      return;
    }
    // The host may load from constants.
    bool accesses = llvm::any_of(op->getOperands(), [&](Value operand) {
      return isMemRef(operand) &&
             !(isa<memref::LoadOp>(op) && isConstantArray(operand));
    });
    if (!accesses)
      return;
    report(op)
        << "'" << op->getName()
        << "' works on device memory, which the host cannot access: expected "
        << (hasKernels ? "a linalg operation, which becomes a kernel"
                       : "operations of ddp and contiguous copies only, "
                         "or kernels for the device (--device=cuda, if "
                         "ddphook was built with DDPHOOK_CODEGEN)");
  }

  InFlightDiagnostic report(Operation *op) {
    signalPassFailure();
    reported.insert(op->getName().getAsOpaquePointer());
    return op->emitError();
  }

  /// Kinds of operations that were reported.
  llvm::SmallPtrSet<const void *, 8> reported;
};
} // namespace
