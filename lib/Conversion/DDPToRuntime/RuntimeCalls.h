//===- RuntimeCalls.h - operations on memory as calls -----------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns the operations of the dialect, once they are on memory, into calls of
// the runtime, and adds to the plan what those calls refer to by number.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_CONVERSION_DDPTORUNTIME_RUNTIMECALLS_H
#define DDPHOOK_LIB_CONVERSION_DDPTORUNTIME_RUNTIMECALLS_H

#include "PlanBuilder.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

namespace mlir::ddp {

class CallLowering {
public:
  /// `plan` has groups, states and buckets already; collectives and matrix
  /// lists are added. `handleSlot` is where the runtime leaves the module's
  /// handle.
  CallLowering(ModuleOp module, LLVM::GlobalOp handleSlot, PlanContents &plan);

  /// Whether this is an operation that lower() knows, in its form on memory.
  static bool canLower(Operation *op);
  /// Whether this is a copy, or zeros, that lower() makes a call of where
  /// arrays lie in a device's memory.
  static bool canLowerOnDevice(Operation *op);

  /// Replaces the operation by calls; explains why if it cannot.
  LogicalResult lower(Operation *op);

private:
  LogicalResult convert(AddOp op);
  LogicalResult convert(AllReduceOp op);
  LogicalResult convert(AllReduceStartOp op);
  LogicalResult convert(ArenaOp op);
  LogicalResult convert(CastOp op);
  LogicalResult convert(CountCompressionOp op);
  LogicalResult convert(IsFiniteOp op);
  LogicalResult convert(MatmulOp op);
  LogicalResult convert(OrthogonalizeOp op);
  LogicalResult convert(ProjectOp op);
  LogicalResult convert(RandomNormalOp op);
  LogicalResult convert(ReconstructOp op);
  LogicalResult convert(ScaleOp op);
  LogicalResult convert(StateBufferOp op);
  LogicalResult convert(SubOp op);
  LogicalResult convert(ViewOp op);
  LogicalResult convert(WaitOp op);
  LogicalResult convert(linalg::FillOp op);
  LogicalResult convert(memref::CopyOp op);
  /// A state in host memory where arrays are in the device's: loads and stores
  /// at `pointer`.
  LogicalResult convertHostState(StateBufferOp op, Value pointer);
  /// The arguments of an all-reduce, which becomes part of the plan.
  template <typename OpTy>
  FailureOr<SmallVector<Value>> getCollective(OpBuilder &builder, OpTy op);
  template <typename OpTy>
  LogicalResult convertBinary(OpTy op, StringRef function);

  /// Calls a function of the runtime with the module's handle and `arguments`;
  /// a null `result` is void.
  LLVM::CallOp createCall(OpBuilder &builder, Location loc, StringRef name,
                          Type result, ArrayRef<Value> arguments);
  Value getHandle(OpBuilder &builder);
  Value getDtype(OpBuilder &builder, Location loc, Value memref);

  LogicalResult getPointer(OpBuilder &builder, Operation *op, Value memref,
                           Value &pointer);
  /// Addresses of memrefs; null pointers for those that are not there.
  FailureOr<SmallVector<Value>> getPointers(OpBuilder &builder, Operation *op,
                                            ArrayRef<Value> memrefs);
  Value createMemRef(OpBuilder &builder, Location loc, Value pointer,
                     MemRefType type);
  Value getMatrixList(OpBuilder &builder, Location loc, MatrixListAttr layout,
                      Type elementType);
  Value getInteger(OpBuilder &builder, Location loc, int64_t value,
                   unsigned width) {
    return LLVM::ConstantOp::create(
        builder, loc,
        builder.getIntegerAttr(builder.getIntegerType(width), value));
  }

  ModuleOp module;
  LLVM::GlobalOp handleSlot;
  PlanContents &plan;
  /// The handle, loaded once in each function.
  llvm::DenseMap<Operation *, Value> handles;
  /// Numbers in the plan.
  llvm::StringMap<unsigned> groupNumbers, stateNumbers, bucketNumbers;
  llvm::DenseMap<PlanMatrixListAttr, unsigned> listNumbers;
  unsigned numDraws = 0;
  /// Where in the arena the zeros are that fills are copied from.
  std::optional<int64_t> zerosOffset;
};

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_CONVERSION_DDPTORUNTIME_RUNTIMECALLS_H
