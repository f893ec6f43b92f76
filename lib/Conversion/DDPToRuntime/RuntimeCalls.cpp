//===- RuntimeCalls.cpp --------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Calls, memory, state, and which operation goes where.
//
//===----------------------------------------------------------------------===//

#include "RuntimeCalls.h"

#include "ddphook/Dialect/DDP/IR/ElementTypes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::ddp;

CallLowering::CallLowering(ModuleOp module, LLVM::GlobalOp handleSlot,
                           PlanContents &plan)
    : module(module), handleSlot(handleSlot), plan(plan) {
  for (auto [number, group] : llvm::enumerate(plan.groups))
    groupNumbers[group.getSymName()] = number;
  for (auto [number, state] : llvm::enumerate(plan.states))
    stateNumbers[state.getSymName()] = number;
  for (auto [number, bucket] : llvm::enumerate(plan.buckets))
    bucketNumbers[bucket.getBucketName()] = number;
}

bool CallLowering::canLower(Operation *op) {
  if (isa<ArenaOp, CountCompressionOp, StateBufferOp, ViewOp>(op))
    return true;
  if (auto wait = dyn_cast<WaitOp>(op))
    return isa<MemRefType>(wait.getInFlight().getType());
  return isa_and_nonnull<DDPDialect>(op->getDialect()) &&
         isa<AlgebraOpInterface, IsFiniteOp>(op) &&
         llvm::all_of(op->getOperandTypes(), llvm::IsaPred<MemRefType>);
}

LogicalResult CallLowering::lower(Operation *op) {
  if (isa<AlgebraOpInterface, IsFiniteOp>(op))
    for (Type type : op->getOperandTypes())
      if (auto memref = dyn_cast<MemRefType>(type);
          memref && !isDtype(memref.getElementType()))
        return op->emitOpError() << "expected elements of type "
                                 << getDtypeNames() << ", but got " << type;
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case<AddOp, AllReduceOp, AllReduceStartOp, ArenaOp, CastOp,
            CountCompressionOp, IsFiniteOp, MatmulOp, OrthogonalizeOp,
            ProjectOp, RandomNormalOp, ReconstructOp, ScaleOp, StateBufferOp,
            SubOp, ViewOp, WaitOp, linalg::FillOp, memref::CopyOp>(
          [&](auto known) { return convert(known); })
      .Default([](Operation *unknown) {
        return unknown->emitOpError() << "expected an operation that the "
                                      << "runtime knows";
      });
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

LLVM::CallOp CallLowering::createCall(OpBuilder &builder, Location loc,
                                      StringRef name, Type result,
                                      ArrayRef<Value> arguments) {
  SmallVector<Value> operands = {getHandle(builder)};
  llvm::append_range(operands, arguments);
  Type type = result ? result : LLVM::LLVMVoidType::get(builder.getContext());
  // Declared when it is first called.
  auto function = module.lookupSymbol<LLVM::LLVMFuncOp>(name);
  if (!function) {
    OpBuilder atStart = OpBuilder::atBlockBegin(module.getBody());
    function = LLVM::LLVMFuncOp::create(
        atStart, module.getLoc(), name,
        LLVM::LLVMFunctionType::get(
            type, llvm::to_vector(ValueRange(operands).getTypes())));
  }
  return LLVM::CallOp::create(builder, loc, function, operands);
}

/// The ddphook_dtype_t of a memref's elements, whose type lower() has checked.
Value CallLowering::getDtype(OpBuilder &builder, Location loc, Value memref) {
  const ElementType *known =
      lookupElementType(getElementTypeOf(memref.getType()));
  return getInteger(builder, loc, *known->dtype, 32);
}

/// The module's handle, loaded once at a function's entry.
Value CallLowering::getHandle(OpBuilder &builder) {
  Operation *parent = builder.getInsertionBlock()->getParentOp();
  auto function = parent->getParentOfType<FunctionOpInterface>();
  if (!function)
    function = cast<FunctionOpInterface>(parent);
  Value &handle = handles[function];
  if (!handle) {
    OpBuilder atEntry =
        OpBuilder::atBlockBegin(&function.getFunctionBody().front());
    Value slot =
        LLVM::AddressOfOp::create(atEntry, function.getLoc(), handleSlot);
    handle =
        LLVM::LoadOp::create(atEntry, function.getLoc(), slot.getType(), slot);
  }
  return handle;
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// The address of the first element of a contiguous memref.
LogicalResult CallLowering::getPointer(OpBuilder &builder, Operation *op,
                                       Value memref, Value &pointer) {
  Location loc = op->getLoc();
  auto type = cast<MemRefType>(memref.getType());
  auto pointerType = LLVM::LLVMPointerType::get(builder.getContext());
  Value address =
      memref::ExtractAlignedPointerAsIndexOp::create(builder, loc, memref);
  address =
      arith::IndexCastOp::create(builder, loc, builder.getI64Type(), address);
  pointer = LLVM::IntToPtrOp::create(builder, loc, pointerType, address);
  if (type.getLayout().isIdentity())
    return success();

  SmallVector<int64_t> strides;
  int64_t offset;
  bool isContiguous = succeeded(type.getStridesAndOffset(strides, offset));
  int64_t expected = 1;
  for (int i = type.getRank() - 1; isContiguous && i >= 0; --i) {
    isContiguous = type.getDimSize(i) == 1 || strides[i] == expected;
    expected *= type.getDimSize(i);
  }
  if (!isContiguous)
    return op->emitOpError() << "expected contiguous memory, but got " << type;
  auto metadata =
      memref::ExtractStridedMetadataOp::create(builder, loc, memref);
  Value elements = arith::IndexCastOp::create(
      builder, loc, builder.getI64Type(), metadata.getOffset());
  pointer = LLVM::GEPOp::create(builder, loc, pointerType,
                                type.getElementType(), pointer, elements);
  return success();
}

/// A memref with identity layout at `pointer`. Built from LLVM's own
/// descriptor, since no operation of the memref dialect makes one from an
/// address.
Value CallLowering::createMemRef(OpBuilder &builder, Location loc,
                                 Value pointer, MemRefType type) {
  MLIRContext *context = builder.getContext();
  Type i64 = builder.getI64Type();
  SmallVector<Type> fields = {pointer.getType(), pointer.getType(), i64};
  if (type.getRank() > 0)
    fields.append(2, LLVM::LLVMArrayType::get(i64, type.getRank()));
  auto descriptorType = LLVM::LLVMStructType::getLiteral(context, fields);
  Value descriptor = LLVM::PoisonOp::create(builder, loc, descriptorType);
  auto insert = [&](Value value, ArrayRef<int64_t> position) {
    descriptor =
        LLVM::InsertValueOp::create(builder, loc, descriptor, value, position);
  };
  insert(pointer, {0});
  insert(pointer, {1});
  insert(getInteger(builder, loc, 0, 64), {2});
  int64_t stride = 1;
  for (int64_t i = type.getRank() - 1; i >= 0; --i) {
    insert(getInteger(builder, loc, type.getDimSize(i), 64), {3, i});
    insert(getInteger(builder, loc, stride, 64), {4, i});
    stride *= type.getDimSize(i);
  }
  return UnrealizedConversionCastOp::create(builder, loc, TypeRange(type),
                                            descriptor)
      .getResult(0);
}

LogicalResult CallLowering::convert(ArenaOp op) {
  OpBuilder builder(op);
  auto pointerType = LLVM::LLVMPointerType::get(module.getContext());
  Value pointer =
      createCall(builder, op.getLoc(), "ddphook_rt_arena", pointerType, {})
          .getResult();
  op.replaceAllUsesWith(createMemRef(builder, op.getLoc(), pointer,
                                     cast<MemRefType>(op.getType())));
  op.erase();
  return success();
}

LogicalResult CallLowering::convert(ViewOp op) {
  OpBuilder builder(op);
  Location loc = op.getLoc();
  MemRefType type = op.getType();
  // A part of a part of the arena is a part of the arena.
  if (auto outer = op.getSource().getDefiningOp<memref::ViewOp>()) {
    int64_t bytes = op.getOffset() * (type.getElementTypeBitWidth() / 8);
    Value shift = outer.getByteShift();
    if (bytes != 0) {
      if (std::optional<int64_t> constant = getConstantIntValue(shift))
        shift = arith::ConstantIndexOp::create(builder, loc, *constant + bytes);
      else
        shift = arith::AddIOp::create(
            builder, loc, shift,
            arith::ConstantIndexOp::create(builder, loc, bytes));
    }
    op.replaceAllUsesWith(memref::ViewOp::create(builder, loc, type,
                                                 outer.getSource(), shift,
                                                 ValueRange())
                              .getResult());
    op.erase();
    return success();
  }
  Value pointer;
  if (failed(getPointer(builder, op, op.getSource(), pointer)))
    return failure();
  // A value, since an index in the operation itself has 32 bits.
  Value offset = getInteger(builder, loc, op.getOffset(), 64);
  pointer = LLVM::GEPOp::create(builder, loc, pointer.getType(),
                                type.getElementType(), pointer, offset);
  op.replaceAllUsesWith(createMemRef(builder, loc, pointer, type));
  op.erase();
  return success();
}

FailureOr<SmallVector<Value>>
CallLowering::getPointers(OpBuilder &builder, Operation *op,
                          ArrayRef<Value> memrefs) {
  SmallVector<Value> pointers;
  for (Value memref : memrefs) {
    Value pointer;
    if (!memref)
      pointer =
          LLVM::ZeroOp::create(builder, op->getLoc(),
                               LLVM::LLVMPointerType::get(module.getContext()));
    else if (failed(getPointer(builder, op, memref, pointer)))
      return failure();
    pointers.push_back(pointer);
  }
  return pointers;
}

//===----------------------------------------------------------------------===//
// State
//===----------------------------------------------------------------------===//

LogicalResult CallLowering::convert(StateBufferOp op) {
  OpBuilder builder(op);
  Value number =
      getInteger(builder, op.getLoc(), stateNumbers.lookup(op.getState()), 32);
  Value pointer =
      createCall(builder, op.getLoc(), "ddphook_rt_state",
                 LLVM::LLVMPointerType::get(module.getContext()), {number})
          .getResult();
  auto type = cast<MemRefType>(op.getType());
  if (plan.memory == ArrayMemory::Device &&
      isa<IntegerType>(type.getElementType()))
    return convertHostState(op, pointer);
  op.replaceAllUsesWith(createMemRef(builder, op.getLoc(), pointer, type));
  op.erase();
  return success();
}

LogicalResult CallLowering::convert(RandomNormalOp op) {
  OpBuilder builder(op);
  Location loc = op.getLoc();
  FailureOr<SmallVector<Value>> pointers =
      getPointers(builder, op, {op.getDestination()});
  if (failed(pointers))
    return failure();
  auto pointerType = LLVM::LLVMPointerType::get(module.getContext());
  Value generator =
      createCall(builder, loc, "ddphook_rt_state", pointerType,
                 {getInteger(builder, loc,
                             stateNumbers.lookup(op.getGenerator()), 32)})
          .getResult();
  ArrayRef<int64_t> draws = op.getDraws();
  auto arrayType = LLVM::LLVMArrayType::get(builder.getI64Type(), draws.size());
  OpBuilder atStart = OpBuilder::atBlockBegin(module.getBody());
  auto sizes = LLVM::GlobalOp::create(
      atStart, loc, arrayType, /*isConstant=*/true, LLVM::Linkage::Internal,
      "__ddphook_draws_" + std::to_string(numDraws++),
      DenseIntElementsAttr::get(
          RankedTensorType::get({int64_t(draws.size())}, builder.getI64Type()),
          draws));
  createCall(builder, loc, "ddphook_rt_random_normal", Type(),
             {generator, LLVM::AddressOfOp::create(builder, loc, sizes),
              getInteger(builder, loc, draws.size(), 64), pointers->front(),
              getDtype(builder, loc, op.getDestination())});
  op.erase();
  return success();
}

//===----------------------------------------------------------------------===//
// Reports
//===----------------------------------------------------------------------===//

LogicalResult CallLowering::convert(IsFiniteOp op) {
  OpBuilder builder(op);
  Location loc = op.getLoc();
  FailureOr<SmallVector<Value>> pointers =
      getPointers(builder, op, {op.getInput()});
  if (failed(pointers))
    return failure();
  Value result =
      createCall(builder, loc, "ddphook_rt_is_finite", builder.getI32Type(),
                 {pointers->front(),
                  getInteger(builder, loc,
                             getNumElementsOf(op.getInput().getType()), 64),
                  getDtype(builder, loc, op.getInput())})
          .getResult();
  op.replaceAllUsesWith(
      Value(LLVM::ICmpOp::create(builder, loc, LLVM::ICmpPredicate::ne, result,
                                 getInteger(builder, loc, 0, 32))));
  op.erase();
  return success();
}

LogicalResult CallLowering::convert(CountCompressionOp op) {
  auto bucket = bucketNumbers.find(op.getBucketName());
  if (bucket == bucketNumbers.end())
    return op.emitOpError() << "expected a bucket that 'ddp.bucket_info' "
                            << "describes, but got " << op.getBucketNameAttr();
  OpBuilder builder(op);
  Location loc = op.getLoc();
  createCall(builder, loc, "ddphook_rt_count_compression", Type(),
             {getInteger(builder, loc, bucket->second, 32),
              getInteger(builder, loc, op.getBefore(), 64),
              getInteger(builder, loc, op.getAfter(), 64), op.getIteration(),
              getInteger(builder, loc, op.getFrequency(), 64)});
  op.erase();
  return success();
}
