//===- RuntimeCallsDevice.cpp --------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The differences when arrays are in a device's memory: copies and zeros become
// calls, and states that are in the host's memory nevertheless are accessed by
// their address. So every memref that is left is memory of the device.
//
//===----------------------------------------------------------------------===//

#include "RuntimeCalls.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::ddp;

/// Elements as they lie in memory; -1 when only LLVM knows.
static int64_t getBytes(MemRefType type) {
  Type element = type.getElementType();
  if (element.isIndex())
    return type.getNumElements() * 8;
  if (!element.isIntOrFloat())
    return -1;
  return type.getNumElements() *
         int64_t(llvm::divideCeil(element.getIntOrFloatBitWidth(), 8));
}

/// Whether this is a constant of the module, which lies in the host's memory.
static bool isConstantArray(Value memref) {
  while (auto view = memref.getDefiningOp<ViewLikeOpInterface>())
    memref = view.getViewSource();
  return memref.getDefiningOp<memref::GetGlobalOp>() != nullptr;
}

/// Whether the runtime can copy from one of these to the other.
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
             << "', which lies in the host's memory: expected a load or a "
                "store of the whole state";
    }
    user->erase();
  }
  return success();
}
