//===- RuntimeCallsDevice.cpp --------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is different when arrays lie in a device's memory: copies and zeros are
// calls, and states that lie in the host's memory all the same are accessed by
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

/// Zeros up to this size are copied from the arena. What ddp-pipeline fills is
/// smaller: two rows of a square matrix at most.
static constexpr int64_t kMaxZeroBytes = 1 << 20;
/// Where they begin.
static constexpr int64_t kZerosAlignment = 64;

static bool isContiguous(Type type) {
  auto memref = dyn_cast<MemRefType>(type);
  if (!memref || !memref.hasStaticShape())
    return false;
  SmallVector<int64_t> strides;
  int64_t offset;
  if (failed(memref.getStridesAndOffset(strides, offset)))
    return false;
  // Whatever the strides of nothing are.
  if (memref.getNumElements() == 0)
    return true;
  int64_t expected = 1;
  for (int64_t i = memref.getRank() - 1; i >= 0; --i) {
    if (memref.getDimSize(i) != 1 && strides[i] != expected)
      return false;
    expected *= memref.getDimSize(i);
  }
  return true;
}

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

bool CallLowering::canLowerOnDevice(Operation *op) {
  if (auto copy = dyn_cast<memref::CopyOp>(op))
    return isContiguous(copy.getSource().getType()) &&
           isContiguous(copy.getTarget().getType()) &&
           getBytes(cast<MemRefType>(copy.getSource().getType())) >= 0 &&
           !isConstantArray(copy.getSource());
  auto fill = dyn_cast<linalg::FillOp>(op);
  if (!fill || !fill.hasPureBufferSemantics() ||
      !isContiguous(fill.output().getType()) ||
      !(matchPattern(fill.value(), m_PosZeroFloat()) ||
        matchPattern(fill.value(), m_Zero())))
    return false;
  int64_t bytes = getBytes(cast<MemRefType>(fill.output().getType()));
  return bytes >= 0 && bytes <= kMaxZeroBytes;
}

LogicalResult CallLowering::convert(memref::CopyOp op) {
  OpBuilder builder(op);
  FailureOr<SmallVector<Value>> pointers =
      getPointers(builder, op, {op.getSource(), op.getTarget()});
  if (failed(pointers))
    return failure();
  int64_t bytes = getBytes(cast<MemRefType>(op.getSource().getType()));
  pointers->push_back(getInteger(builder, op.getLoc(), bytes, 64));
  createCall(builder, op.getLoc(), "ddphook_rt_copy", Type(), *pointers);
  op.erase();
  return success();
}

/// The runtime allocates the arena zeroed, and behind the functions' buffers
/// nothing is ever written.
LogicalResult CallLowering::convert(linalg::FillOp op) {
  OpBuilder builder(op);
  Location loc = op.getLoc();
  FailureOr<SmallVector<Value>> pointers =
      getPointers(builder, op, {op.output()});
  if (failed(pointers))
    return failure();
  int64_t bytes = getBytes(cast<MemRefType>(op.output().getType()));
  if (!zerosOffset)
    zerosOffset = llvm::alignTo(plan.arenaBytes, kZerosAlignment);
  plan.arenaBytes = std::max(plan.arenaBytes, *zerosOffset + bytes);
  auto pointerType = LLVM::LLVMPointerType::get(builder.getContext());
  Value arena =
      createCall(builder, loc, "ddphook_rt_arena", pointerType, {}).getResult();
  Value zeros =
      LLVM::GEPOp::create(builder, loc, pointerType, builder.getI8Type(), arena,
                          getInteger(builder, loc, *zerosOffset, 64));
  createCall(builder, loc, "ddphook_rt_copy", Type(),
             {zeros, pointers->front(), getInteger(builder, loc, bytes, 64)});
  op.erase();
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
  op.erase();
  return success();
}
