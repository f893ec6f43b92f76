// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lowers memory and states, creates calls, and dispatches each operation to its
// lowering.

#include "RuntimeCalls.h"

#include "ddphook/Dialect/DDP/IR/ElementTypes.h"

#include "mlir/Conversion/LLVMCommon/MemRefBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::ddp;

CallLowering::CallLowering(ModuleOp module, LLVM::GlobalOp handleSlot,
                           PlanContents &plan)
    : module(module), handleSlot(handleSlot), plan(plan),
      typeConverter(module.getContext()) {
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
  return isa<FlatOpInterface, IsFiniteOp>(op) &&
         isa<MemRefType>(op->getOperand(0).getType());
}

/// Checks that an assignment lists members of its bucket and fits the bucket's
/// process group.
LogicalResult CallLowering::checkAssignment(Operation *op,
                                            AssignmentAttr assignment) {
  auto number = bucketNumbers.find(assignment.getBucket());
  if (number == bucketNumbers.end())
    return op->emitOpError() << "expected the assignment of a bucket that "
                                "'ddp.bucket_info' describes, but got "
                             << assignment;
  BucketInfoOp bucket = plan.buckets[number->second];
  const int64_t members = bucket.getType().getNumMembers();
  auto isBeyond = [&](int64_t member) { return member >= members; };
  if (llvm::any_of(assignment.getMembers(), isBeyond) ||
      llvm::any_of(assignment.getGroups(), isBeyond))
    return op->emitOpError() << "expected an assignment of " << members
                             << " members, but got " << assignment;
  ProcessGroupOp whole = plan.groups[groupNumbers.lookup(bucket.getGroup())];
  if (!whole.isHierarchical())
    return op->emitOpError() << "expected the assignment of a bucket of a "
                                "hierarchical process group, but got "
                             << assignment;
  auto collective = dyn_cast<CollectiveOpInterface>(op);
  if (!collective)
    return success();
  // The verifier has checked that it is hierarchical, or within nodes.
  ProcessGroupOp group =
      plan.groups[groupNumbers.lookup(collective.getGroupAttr().getValue())];
  if (group != whole && group.getParent() != whole.getSymName())
    return op->emitOpError()
           << "expected the assignment of a bucket that is reduced "
              "over @"
           << group.getSymName() << ", but got " << assignment;
  return success();
}

LogicalResult CallLowering::lower(Operation *op) {
  for (Type type : op->getOperandTypes())
    if (isa<MemRefType>(type) && !isContiguous(type))
      return op->emitOpError()
             << "expected contiguous memory, but got " << type;
  if (isa<FlatOpInterface, IsFiniteOp>(op))
    for (Type type : op->getOperandTypes())
      if (auto memref = dyn_cast<MemRefType>(type);
          memref && !isDtype(memref.getElementType()))
        return op->emitOpError() << "expected elements of type "
                                 << getDtypeNames() << ", but got " << type;
  if (AssignmentAttr assignment = getAssignment(op);
      assignment && failed(checkAssignment(op, assignment)))
    return failure();
  LogicalResult result =
      llvm::TypeSwitch<Operation *, LogicalResult>(op)
          .Case<ArenaOp, CountCompressionOp, FlatAddOp, FlatAllGatherOp,
                FlatAllReduceOp, FlatAllReduceStartOp, FlatAllToAllOp,
                FlatBroadcastOp, FlatCastOp, FlatDensifyOp, FlatEncodingErrorOp,
                FlatExchangeStartOp, FlatMatmulOp, FlatOrthogonalizeOp,
                FlatProjectOp, FlatRandomNormalOp, FlatReconstructOp,
                FlatReduceScatterOp, FlatScaleOp, FlatSparsifyOp, FlatSubOp,
                FlatWaitOp, IsFiniteOp, StateBufferOp, ViewOp, linalg::CopyOp,
                linalg::FillOp, memref::CopyOp>(
              [&](auto known) { return convert(known); })
          .Default([](Operation *unknown) {
            return unknown->emitOpError()
                   << "expected an operation that the runtime supports";
          });
  if (succeeded(result))
    op->erase();
  return result;
}

bool mlir::ddp::isContiguous(Type type) {
  auto memref = dyn_cast<MemRefType>(type);
  // The strides of an empty memref do not matter.
  return memref && memref.hasStaticShape() && memref.isStrided() &&
         (memref.getNumElements() == 0 ||
          memref.areTrailingDimsContiguous(memref.getRank()));
}

ddphook_dtype_t mlir::ddp::getDtype(Value memref) {
  const ElementType *known =
      lookupElementType(getElementTypeOf(memref.getType()));
  return static_cast<ddphook_dtype_t>(*known->dtype);
}

/// Returns the module's handle, loaded once at a function's entry.
Value CallLowering::getHandle(Operation *op) {
  auto function = op->getParentOfType<FunctionOpInterface>();
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

/// Returns the address of a memref's first element; lower() has checked that it
/// is contiguous. Returns any other value unchanged.
Value CallLowering::getPointer(OpBuilder &builder, Location loc, Value memref) {
  auto type = memref ? dyn_cast<MemRefType>(memref.getType()) : MemRefType();
  if (!type)
    return memref;
  auto pointerType = LLVM::LLVMPointerType::get(builder.getContext());
  Value address =
      memref::ExtractAlignedPointerAsIndexOp::create(builder, loc, memref);
  address =
      arith::IndexCastOp::create(builder, loc, builder.getI64Type(), address);
  Value pointer = LLVM::IntToPtrOp::create(builder, loc, pointerType, address);
  if (type.getLayout().isIdentity())
    return pointer;
  auto metadata =
      memref::ExtractStridedMetadataOp::create(builder, loc, memref);
  Value elements = arith::IndexCastOp::create(
      builder, loc, builder.getI64Type(), metadata.getOffset());
  return LLVM::GEPOp::create(builder, loc, pointerType, type.getElementType(),
                             pointer, elements);
}

/// Creates a memref with identity layout at `pointer`. It is built from LLVM's
/// descriptor because the memref dialect cannot make one from an address.
Value CallLowering::createMemRef(OpBuilder &builder, Location loc,
                                 Value pointer, MemRefType type) {
  Value descriptor = MemRefDescriptor::fromStaticShape(
      builder, loc, typeConverter, type, pointer);
  return UnrealizedConversionCastOp::create(builder, loc, type, descriptor)
      .getResult(0);
}

LogicalResult CallLowering::convert(ArenaOp op) {
  OpBuilder builder(op);
  Value pointer = call(op, rt::arena).getResult();
  op.replaceAllUsesWith(createMemRef(builder, op.getLoc(), pointer,
                                     cast<MemRefType>(op.getType())));
  return success();
}

LogicalResult CallLowering::convert(ViewOp op) {
  OpBuilder builder(op);
  Location loc = op.getLoc();
  MemRefType type = op.getType();
  // A view of a view of the arena is a view of the arena.
  if (auto outer = op.getSource().getDefiningOp<memref::ViewOp>()) {
    int64_t bytes = op.getOffset() * (type.getElementTypeBitWidth() / 8);
    Value shift = outer.getByteShift();
    if (bytes != 0)
      shift = builder.createOrFold<arith::AddIOp>(
          loc, shift, arith::ConstantIndexOp::create(builder, loc, bytes));
    op.replaceAllUsesWith(memref::ViewOp::create(builder, loc, type,
                                                 outer.getSource(), shift,
                                                 ValueRange())
                              .getResult());
    return success();
  }
  Value pointer = getPointer(builder, loc, op.getSource());
  // Not a constant index of the operation: those have 32 bits.
  Value offset = getInteger(builder, loc, op.getOffset(), 64);
  pointer = LLVM::GEPOp::create(builder, loc, pointer.getType(),
                                type.getElementType(), pointer, offset);
  op.replaceAllUsesWith(createMemRef(builder, loc, pointer, type));
  return success();
}

LogicalResult CallLowering::convert(StateBufferOp op) {
  Value pointer =
      call(op, rt::state, stateNumbers.lookup(op.getState())).getResult();
  auto type = cast<MemRefType>(op.getType());
  if (plan.memory == ArrayMemory::Device &&
      isa<IntegerType>(type.getElementType()))
    return convertHostState(op, pointer);
  OpBuilder builder(op);
  op.replaceAllUsesWith(createMemRef(builder, op.getLoc(), pointer, type));
  return success();
}

LogicalResult CallLowering::convert(FlatRandomNormalOp op) {
  OpBuilder builder(op);
  Location loc = op.getLoc();
  Value generator =
      call(op, rt::state, stateNumbers.lookup(op.getGenerator())).getResult();
  ArrayRef<int64_t> draws = op.getDraws();
  auto arrayType = LLVM::LLVMArrayType::get(builder.getI64Type(), draws.size());
  OpBuilder atStart = OpBuilder::atBlockBegin(module.getBody());
  auto sizes = LLVM::GlobalOp::create(
      atStart, loc, arrayType, /*isConstant=*/true, LLVM::Linkage::Internal,
      "__ddphook_draws_" + std::to_string(numDraws++),
      DenseIntElementsAttr::get(
          RankedTensorType::get({int64_t(draws.size())}, builder.getI64Type()),
          draws));
  Value sizesAddress = LLVM::AddressOfOp::create(builder, loc, sizes);
  call(op, rt::random_normal, generator, sizesAddress, draws.size(),
       op.getDestination(), getDtype(op.getDestination()));
  return success();
}

LogicalResult CallLowering::convert(IsFiniteOp op) {
  Value result =
      call(op, rt::is_finite, op.getInput(),
           getNumElementsOf(op.getInput().getType()), getDtype(op.getInput()))
          .getResult();
  OpBuilder builder(op);
  Value zero = LLVM::ConstantOp::create(builder, op.getLoc(),
                                        builder.getI32IntegerAttr(0));
  op.replaceAllUsesWith(Value(LLVM::ICmpOp::create(
      builder, op.getLoc(), LLVM::ICmpPredicate::ne, result, zero)));
  return success();
}

LogicalResult CallLowering::convert(CountCompressionOp op) {
  FailureOr<int32_t> bucket = getBucket(op, op.getBucketNameAttr());
  if (succeeded(bucket))
    call(op, rt::count_compression, *bucket, op.getBefore(), op.getAfter(),
         op.getIteration(), op.getFrequency());
  return bucket;
}
