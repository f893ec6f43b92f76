// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lowers what differs when arrays are in device memory: copies and zero fills
// become calls, and states that remain in host memory are accessed by address.
// Every remaining memref is then device memory.

#include "RuntimeCalls.h"

#include "mlir/IR/Matchers.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::ddp;

/// Returns the size in memory, or -1 if only LLVM knows it.
static int64_t getBytes(MemRefType type) {
  Type element = type.getElementType();
  if (element.isIndex())
    return type.getNumElements() * 8;
  if (!element.isIntOrFloat())
    return -1;
  return type.getNumElements() *
         int64_t(llvm::divideCeil(element.getIntOrFloatBitWidth(), 8));
}

/// Returns true if this is a constant of the module, which is in host memory.
static bool isConstantArray(Value memref) {
  while (auto view = memref.getDefiningOp<ViewLikeOpInterface>())
    memref = view.getViewSource();
  return memref.getDefiningOp<memref::GetGlobalOp>() != nullptr;
}

/// Returns true if the runtime can copy `source` to `target`.
static bool canCopy(Value source, Value target) {
  return isContiguous(source.getType()) && isContiguous(target.getType()) &&
         getElementTypeOrSelf(source) == getElementTypeOrSelf(target) &&
         getBytes(cast<MemRefType>(source.getType())) >= 0 &&
         !isConstantArray(source);
}

bool CallLowering::canLowerOnDevice(Operation *op) {
  if (auto copy = dyn_cast<memref::CopyOp>(op))
    return canCopy(copy.getSource(), copy.getTarget());
  if (auto copy = dyn_cast<linalg::CopyOp>(op))
    return copy.hasPureBufferSemantics() &&
           canCopy(copy.getInputs().front(), copy.getOutputs().front());
  auto fill = dyn_cast<linalg::FillOp>(op);
  if (!fill || !fill.hasPureBufferSemantics() ||
      !isContiguous(fill.output().getType()) ||
      !(matchPattern(fill.value(), m_PosZeroFloat()) ||
        matchPattern(fill.value(), m_Zero())))
    return false;
  return getBytes(cast<MemRefType>(fill.output().getType())) >= 0;
}

LogicalResult CallLowering::convert(memref::CopyOp op) {
  call(op, rt::copy, op.getSource(), op.getTarget(),
       getBytes(cast<MemRefType>(op.getSource().getType())));
  return success();
}

LogicalResult CallLowering::convert(linalg::CopyOp op) {
  Value source = op.getInputs().front();
  call(op, rt::copy, source, op.getOutputs().front(),
       getBytes(cast<MemRefType>(source.getType())));
  return success();
}

LogicalResult CallLowering::convert(linalg::FillOp op) {
  call(op, rt::zero, op.output(),
       getBytes(cast<MemRefType>(op.output().getType())));
  return success();
}

LogicalResult CallLowering::convertHostState(StateBufferOp op, Value pointer) {
  for (Operation *user : llvm::make_early_inc_range(op->getUsers())) {
    OpBuilder builder(user);
    auto load = dyn_cast<memref::LoadOp>(user);
    auto store = dyn_cast<memref::StoreOp>(user);
    if (load && load.getIndices().empty()) {
      load.replaceAllUsesWith(Value(LLVM::LoadOp::create(
          builder, user->getLoc(), load.getType(), pointer)));
    } else if (store && store.getIndices().empty() &&
               store.getMemRef() == op.getResult()) {
      LLVM::StoreOp::create(builder, user->getLoc(), store.getValueToStore(),
                            pointer);
    } else {
      return user->emitOpError()
             << "works on state '" << op.getState()
             << "', which is in host memory: expected a load or a "
                "store of the whole state";
    }
    user->erase();
  }
  return success();
}
