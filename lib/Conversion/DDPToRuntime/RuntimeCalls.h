// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Converts the dialect's operations on memory to runtime calls, and adds to the
// plan what those calls refer to by number.

#pragma once

#include "PlanBuilder.h"

#include "ddphook/Dialect/DDP/IR/RuntimeCalls.h"

#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

namespace mlir::ddp {

/// Returns true if this is a memref with contiguous elements.
bool isContiguous(Type type);

/// Returns the runtime's dtype for a memref's elements; lower() has checked
/// that there is one.
ddphook_dtype_t getDtype(Value memref);

class CallLowering {
public:
  /// `plan` already has groups, states and buckets; lowering adds collectives
  /// and matrix lists. The runtime stores the module's handle in `handleSlot`.
  CallLowering(ModuleOp module, LLVM::GlobalOp handleSlot, PlanContents &plan);

  /// Returns true if lower() supports this operation, in its memory form.
  static bool canLower(Operation *op);
  /// Returns true if this is a copy or a zero fill that lower() converts to a
  /// call when arrays are in device memory.
  static bool canLowerOnDevice(Operation *op);

  /// Replaces the operation by calls, or emits an error.
  LogicalResult lower(Operation *op);

private:
  /// Creates the calls; lower() erases the operation.
  LogicalResult convert(FlatAllReduceStartOp op);
  LogicalResult convert(FlatExchangeStartOp op);
  template <typename OpTy>
  std::enable_if_t<OpTy::template hasTrait<CollectiveOpInterface::Trait>(),
                   LogicalResult>
  convert(OpTy op) {
    return convertCollective(op, op.getDestination());
  }
  LogicalResult convert(ArenaOp op);
  LogicalResult convert(FlatAddOp op);
  LogicalResult convert(FlatSubOp op);
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
  LogicalResult convert(ViewOp op);
  LogicalResult convert(FlatWaitOp op);
  LogicalResult convert(linalg::CopyOp op);
  LogicalResult convert(linalg::FillOp op);
  LogicalResult convert(memref::CopyOp op);
  /// Replaces a state that stays in host memory while arrays are on the device
  /// by loads and stores at `pointer`.
  LogicalResult convertHostState(StateBufferOp op, Value pointer);
  LogicalResult convertCollective(CollectiveOpInterface op, Value destination);
  FailureOr<LLVM::CallOp> startCollective(CollectiveOpInterface op,
                                          Value destination);
  /// Returns the number of a bucket in the plan, or emits an error.
  FailureOr<int32_t> getBucket(Operation *op, StringAttr name);
  /// Adds a collective to the plan and returns its number.
  FailureOr<int32_t> getCollective(CollectiveOpInterface op);
  /// Returns the number of a matrix list in the plan; equal ones share one.
  int32_t getMatrixList(MatrixListAttr layout, Type elementType,
                        AssignmentAttr assignment = {});

  /// Calls a runtime function in place of `op`. A memref argument is passed as
  /// the address of its first element.
  template <typename Result, typename... Parameters>
  LLVM::CallOp
  call(Operation *op,
       const RuntimeFunction<Result(ddphook_module_t *, Parameters...)>
           &function,
       llvm::type_identity_t<RuntimeArgument<Parameters>>... arguments) {
    OpBuilder builder(op);
    ((arguments.value = getPointer(builder, op->getLoc(), arguments.value)),
     ...);
    return function.call(builder, op->getLoc(), module, getHandle(op),
                         arguments...);
  }
  /// Calls a function that measures what `op` loses of a bucket, if a hook says
  /// of which one.
  template <typename... Parameters>
  LogicalResult measure(
      Operation *op,
      const RuntimeFunction<void(ddphook_module_t *, int32_t, Parameters...)>
          &function,
      llvm::type_identity_t<RuntimeArgument<Parameters>>... arguments) {
    auto name = op->getAttrOfType<StringAttr>(DDPDialect::kCompressesAttrName);
    if (!name)
      return success();
    FailureOr<int32_t> bucket = getBucket(op, name);
    if (succeeded(bucket))
      call(op, function, *bucket, arguments...);
    return bucket;
  }
  Value getHandle(Operation *op);
  LogicalResult checkAssignment(Operation *op, AssignmentAttr assignment);

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
  LLVMTypeConverter typeConverter;
  /// The handle, loaded once in each function.
  llvm::DenseMap<Operation *, Value> handles;
  /// Numbers in the plan.
  llvm::StringMap<unsigned> groupNumbers, stateNumbers, bucketNumbers;
  llvm::DenseMap<PlanMatrixListAttr, unsigned> listNumbers;
  unsigned numDraws = 0;
};

} // namespace mlir::ddp
