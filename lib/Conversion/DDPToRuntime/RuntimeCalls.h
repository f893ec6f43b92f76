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

#include "ddphook/Dialect/DDP/IR/RuntimeCalls.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

namespace mlir::ddp {

/// Whether this is a memref whose elements lie one behind the other.
bool isContiguous(Type type);

/// The runtime's name for the type of a memref's elements, which lower() has
/// checked.
ddphook_dtype_t getDtype(Value memref);

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
  /// Makes the calls; lower() erases the operation.
  LogicalResult convert(FlatAddOp op);
  LogicalResult convert(FlatAllReduceOp op);
  LogicalResult convert(FlatAllReduceStartOp op);
  LogicalResult convert(FlatExchangeStartOp op);
  LogicalResult convert(FlatReduceScatterOp op);
  LogicalResult convert(FlatAllGatherOp op);
  LogicalResult convert(FlatAllToAllOp op);
  LogicalResult convert(FlatBroadcastOp op);
  LogicalResult convert(ArenaOp op);
  LogicalResult convert(FlatCastOp op);
  LogicalResult convert(CountCompressionOp op);
  LogicalResult convert(IsFiniteOp op);
  LogicalResult convert(FlatDensifyOp op);
  LogicalResult convert(FlatEncodingErrorOp op);
  LogicalResult convert(FlatMatmulOp op);
  LogicalResult convert(FlatOrthogonalizeOp op);
  LogicalResult convert(FlatProjectOp op);
  LogicalResult convert(FlatRandomNormalOp op);
  LogicalResult convert(FlatReconstructOp op);
  LogicalResult convert(FlatScaleOp op);
  LogicalResult convert(StateBufferOp op);
  LogicalResult convert(FlatSparsifyOp op);
  LogicalResult convert(FlatSubOp op);
  LogicalResult convert(ViewOp op);
  LogicalResult convert(FlatWaitOp op);
  LogicalResult convert(linalg::CopyOp op);
  LogicalResult convert(linalg::FillOp op);
  LogicalResult convert(memref::CopyOp op);
  /// A state in host memory where arrays are in the device's: loads and stores
  /// at `pointer`.
  LogicalResult convertHostState(StateBufferOp op, Value pointer);
  /// Calls `function`, or where codes are rounded at random what takes a step.
  template <typename OpTy, typename FunctionTy>
  LogicalResult convertCollective(OpTy op, const FunctionTy &function);
  template <typename OpTy, typename FunctionTy>
  FailureOr<LLVM::CallOp> startCollective(OpTy op, const FunctionTy &function);
  /// The number of a collective, which becomes part of the plan.
  FailureOr<int32_t> getCollective(CollectiveOpInterface op);
  /// The number of a matrix list in the plan; equal ones share one.
  int32_t getMatrixList(MatrixListAttr layout, Type elementType,
                        DealAttr deal = {});

  /// Calls a function of the runtime in place of `op`. A memref among the
  /// arguments stands for the address of its first element.
  template <typename Result, typename... Parameters>
  LLVM::CallOp
  call(Operation *op,
       const RuntimeFunction<Result(ddphook_module_t *, Parameters...)>
           &function,
       llvm::type_identity_t<RuntimeArgument<Parameters>>... arguments) {
    OpBuilder builder(op);
    ((arguments.value = getPointer(builder, op->getLoc(), arguments.value)),
     ...);
    return function.call(builder, op->getLoc(), module, getHandle(builder),
                         arguments...);
  }
  Value getHandle(OpBuilder &builder);
  LogicalResult checkDeal(Operation *op, DealAttr deal);

  Value getPointer(OpBuilder &builder, Location loc, Value memref);
  Value createMemRef(OpBuilder &builder, Location loc, Value pointer,
                     MemRefType type);
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
};

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_CONVERSION_DDPTORUNTIME_RUNTIMECALLS_H
