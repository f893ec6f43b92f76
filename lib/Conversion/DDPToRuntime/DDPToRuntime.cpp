//===- DDPToRuntime.cpp ----------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// convert-ddp-to-runtime: operations on memory become calls of the runtime, and
// everything that the runtime has to know beforehand becomes the plan.
//
//===----------------------------------------------------------------------===//

#include "ddphook/Conversion/DDPToRuntime/DDPToRuntime.h"
#include "PlanWriter.h"

#include "ddphook/Dialect/DDP/IR/DDP.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/ADT/TypeSwitch.h"

namespace mlir::ddp {
#define GEN_PASS_DEF_CONVERTDDPTORUNTIMEPASS
#include "ddphook/Conversion/DDPToRuntime/Passes.h.inc"
} // namespace mlir::ddp

using namespace mlir;
using namespace mlir::ddp;

namespace {

/// Emits calls, declaring each function of the runtime when it is first called.
class RuntimeCalls {
public:
  RuntimeCalls(ModuleOp module, LLVM::GlobalOp handleSlot)
      : module(module), handleSlot(handleSlot) {}

  LLVM::CallOp create(OpBuilder &builder, Location loc, StringRef name,
                      Type result, ArrayRef<Value> arguments) {
    SmallVector<Value> operands = {getHandle(builder)};
    llvm::append_range(operands, arguments);
    Type type = result ? result : LLVM::LLVMVoidType::get(builder.getContext());
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

private:
  /// The module's handle, loaded once at a function's entry.
  Value getHandle(OpBuilder &builder) {
    auto function = builder.getInsertionBlock()
                        ->getParentOp()
                        ->getParentOfType<FunctionOpInterface>();
    if (!function)
      function =
          cast<FunctionOpInterface>(builder.getInsertionBlock()->getParentOp());
    Value &handle = handles[function];
    if (!handle) {
      OpBuilder atEntry =
          OpBuilder::atBlockBegin(&function.getFunctionBody().front());
      Value slot =
          LLVM::AddressOfOp::create(atEntry, function.getLoc(), handleSlot);
      handle = LLVM::LoadOp::create(atEntry, function.getLoc(), slot.getType(),
                                    slot);
    }
    return handle;
  }

  ModuleOp module;
  LLVM::GlobalOp handleSlot;
  llvm::DenseMap<Operation *, Value> handles;
};

struct ConvertDDPToRuntimePass
    : public ddp::impl::ConvertDDPToRuntimePassBase<ConvertDDPToRuntimePass> {
  using ConvertDDPToRuntimePassBase::ConvertDDPToRuntimePassBase;

  void runOnOperation() override;

private:
  LogicalResult collectEntries();
  LogicalResult convert(AllReduceOp op);
  LogicalResult convert(CastOp op);
  LogicalResult convert(ScaleOp op);
  LogicalResult convert(MatmulOp op);
  LogicalResult convert(OrthogonalizeOp op);
  LogicalResult convert(ProjectOp op);
  LogicalResult convert(ReconstructOp op);
  LogicalResult convert(RandomNormalOp op);
  template <typename OpTy>
  LogicalResult convertBinary(OpTy op, StringRef function);
  LogicalResult convert(IsFiniteOp op);
  LogicalResult convert(CountCompressionOp op);
  LogicalResult convertStateBuffer(StateBufferOp op);
  LogicalResult convertArena(ArenaOp op);
  LogicalResult convertView(ViewOp op);
  void cleanUp();
  LogicalResult checkNothingIsLeft();

  /// Addresses of memrefs; null pointers for those that are not there.
  FailureOr<SmallVector<Value>> getPointers(OpBuilder &builder, Operation *op,
                                            ArrayRef<Value> memrefs);
  Value getMatrixList(OpBuilder &builder, Location loc, MatrixListAttr layout,
                      Type elementType);
  LogicalResult getPointer(OpBuilder &builder, Operation *op, Value memref,
                           Value &pointer);
  Value createMemRef(OpBuilder &builder, Location loc, Value pointer,
                     MemRefType type);
  Value getInteger(OpBuilder &builder, Location loc, int64_t value,
                   unsigned width) {
    return LLVM::ConstantOp::create(
        builder, loc,
        builder.getIntegerAttr(builder.getIntegerType(width), value));
  }

  std::optional<RuntimeCalls> calls;
  llvm::StringMap<unsigned> groupNumbers, stateNumbers, bucketNumbers;
  llvm::DenseMap<std::pair<Attribute, Type>, unsigned> listNumbers;
  PlanContents plan;
  unsigned numDraws = 0;
};

} // namespace

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// The address of the first element of a contiguous memref.
LogicalResult ConvertDDPToRuntimePass::getPointer(OpBuilder &builder,
                                                  Operation *op, Value memref,
                                                  Value &pointer) {
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
Value ConvertDDPToRuntimePass::createMemRef(OpBuilder &builder, Location loc,
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

LogicalResult ConvertDDPToRuntimePass::convertArena(ArenaOp op) {
  OpBuilder builder(op);
  auto pointerType = LLVM::LLVMPointerType::get(&getContext());
  Value pointer =
      calls->create(builder, op.getLoc(), "ddphook_rt_arena", pointerType, {})
          .getResult();
  op.replaceAllUsesWith(createMemRef(builder, op.getLoc(), pointer,
                                     cast<MemRefType>(op.getType())));
  op.erase();
  return success();
}

LogicalResult ConvertDDPToRuntimePass::convertView(ViewOp op) {
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

//===----------------------------------------------------------------------===//
// The algebra
//===----------------------------------------------------------------------===//

LogicalResult ConvertDDPToRuntimePass::convert(AllReduceOp op) {
  OpBuilder builder(op);
  Value input, output;
  if (failed(getPointer(builder, op, op.getInput(), input)) ||
      failed(getPointer(builder, op, op.getDestination(), output)))
    return failure();
  auto type = cast<MemRefType>(op.getInput().getType());
  Value number = getInteger(builder, op.getLoc(), plan.collectives.size(), 32);
  plan.collectives.push_back(
      {op.getBucketName().value_or(""), groupNumbers.lookup(op.getGroup()),
       type.getNumElements(), type.getElementType(),
       op.getWire().value_or(Type()), op.getReduction() == Reduction::Mean});
  calls->create(builder, op.getLoc(), "ddphook_rt_all_reduce", Type(),
                {number, input, output});
  op.erase();
  return success();
}

LogicalResult ConvertDDPToRuntimePass::convert(CastOp op) {
  OpBuilder builder(op);
  Location loc = op.getLoc();
  Value input, output;
  if (failed(getPointer(builder, op, op.getInput(), input)) ||
      failed(getPointer(builder, op, op.getDestination(), output)))
    return failure();
  Type from = getElementTypeOf(op.getInput().getType());
  Type to = getElementTypeOf(op.getDestination().getType());
  calls->create(builder, loc, "ddphook_rt_cast", Type(),
                {input, getInteger(builder, loc, getDtypeValue(from), 32),
                 output, getInteger(builder, loc, getDtypeValue(to), 32),
                 getInteger(builder, loc,
                            getNumElementsOf(op.getInput().getType()), 64)});
  op.erase();
  return success();
}

LogicalResult ConvertDDPToRuntimePass::convert(ScaleOp op) {
  OpBuilder builder(op);
  Location loc = op.getLoc();
  Value input, output;
  if (failed(getPointer(builder, op, op.getInput(), input)) ||
      failed(getPointer(builder, op, op.getDestination(), output)))
    return failure();
  Type type = op.getInput().getType();
  Value count = getInteger(builder, loc, getNumElementsOf(type), 64);
  Value dtype =
      getInteger(builder, loc, getDtypeValue(getElementTypeOf(type)), 32);
  if (op.getGroup()) {
    Value group =
        getInteger(builder, loc, groupNumbers.lookup(*op.getGroup()), 32);
    calls->create(builder, loc, "ddphook_rt_divide_by_world", Type(),
                  {group, input, output, count, dtype});
  } else {
    Value factor = LLVM::ConstantOp::create(builder, loc, op.getFactorAttr());
    calls->create(builder, loc, "ddphook_rt_scale", Type(),
                  {factor, input, output, count, dtype});
  }
  op.erase();
  return success();
}

//===----------------------------------------------------------------------===//
// Low rank
//===----------------------------------------------------------------------===//

FailureOr<SmallVector<Value>>
ConvertDDPToRuntimePass::getPointers(OpBuilder &builder, Operation *op,
                                     ArrayRef<Value> memrefs) {
  SmallVector<Value> pointers;
  for (Value memref : memrefs) {
    Value pointer;
    if (!memref)
      pointer = LLVM::ZeroOp::create(
          builder, op->getLoc(), LLVM::LLVMPointerType::get(&getContext()));
    else if (failed(getPointer(builder, op, memref, pointer)))
      return failure();
    pointers.push_back(pointer);
  }
  return pointers;
}

/// The number of a matrix list in the plan; equal ones share one.
Value ConvertDDPToRuntimePass::getMatrixList(OpBuilder &builder, Location loc,
                                             MatrixListAttr layout,
                                             Type elementType) {
  auto [it, isNew] = listNumbers.try_emplace({layout, elementType},
                                             plan.matrixLists.size());
  if (isNew)
    plan.matrixLists.push_back({layout, elementType});
  return getInteger(builder, loc, it->second, 32);
}

template <typename OpTy>
LogicalResult ConvertDDPToRuntimePass::convertBinary(OpTy op,
                                                     StringRef function) {
  OpBuilder builder(op);
  Location loc = op.getLoc();
  FailureOr<SmallVector<Value>> pointers = getPointers(
      builder, op, {op.getInput(), op.getRhs(), op.getDestination()});
  if (failed(pointers))
    return failure();
  Type type = op.getInput().getType();
  pointers->push_back(getInteger(builder, loc, getNumElementsOf(type), 64));
  pointers->push_back(
      getInteger(builder, loc, getDtypeValue(getElementTypeOf(type)), 32));
  calls->create(builder, loc, function, Type(), *pointers);
  op.erase();
  return success();
}

LogicalResult ConvertDDPToRuntimePass::convert(MatmulOp op) {
  OpBuilder builder(op);
  Location loc = op.getLoc();
  // ddphook_matmul_kind_t, and its arguments: matrix, P, Q.
  int64_t kind = 0;
  SmallVector<Value> memrefs = {op.getLhs(), op.getDestination(), op.getRhs()};
  if (op.getTransposeLhs()) {
    kind = 1;
    memrefs = {op.getLhs(), op.getRhs(), op.getDestination()};
  } else if (op.getTransposeRhs()) {
    kind = 2;
    memrefs = {op.getDestination(), op.getLhs(), op.getRhs()};
  }
  FailureOr<SmallVector<Value>> pointers = getPointers(builder, op, memrefs);
  if (failed(pointers))
    return failure();
  SmallVector<Value> arguments = {
      getMatrixList(builder, loc, *op.getLayout(),
                    getElementTypeOf(op.getLhs().getType())),
      getInteger(builder, loc, kind, 32)};
  llvm::append_range(arguments, *pointers);
  calls->create(builder, loc, "ddphook_rt_matmul", Type(), arguments);
  op.erase();
  return success();
}

LogicalResult ConvertDDPToRuntimePass::convert(OrthogonalizeOp op) {
  OpBuilder builder(op);
  Location loc = op.getLoc();
  FailureOr<SmallVector<Value>> pointers =
      getPointers(builder, op, {op.getInput(), op.getDestination()});
  if (failed(pointers))
    return failure();
  // ddphook_factor_t: Q, as MatrixListAttr has it, and a flag.
  int64_t factor = op.getUnitColumns() ? 3 : 1;
  calls->create(builder, loc, "ddphook_rt_orthogonalize", Type(),
                {getMatrixList(builder, loc, *op.getLayout(),
                               getElementTypeOf(op.getInput().getType())),
                 getInteger(builder, loc, factor, 32), (*pointers)[0],
                 (*pointers)[1],
                 LLVM::ConstantOp::create(builder, loc, op.getEpsilonAttr())});
  op.erase();
  return success();
}

LogicalResult ConvertDDPToRuntimePass::convert(ProjectOp op) {
  OpBuilder builder(op);
  Location loc = op.getLoc();
  SmallVector<Value> into = llvm::to_vector(op.getDestination());
  ArrayRef<int64_t> pieces = op.getLayout()->getPieces().asArrayRef();
  Value m = op.getError() ? into.front() : Value();
  Value p = into[op.getPNumber()];
  Value rest = !pieces.empty() && !op.getPacked() ? into.back() : Value();
  FailureOr<SmallVector<Value>> pointers =
      getPointers(builder, op, {op.getInput(), op.getError(), op.getFactor(),
                                m, p, rest});
  if (failed(pointers))
    return failure();
  if (op.getPacked()) {
    int64_t restSize = 0;
    for (size_t i = 2; i < pieces.size(); i += 3)
      restSize += pieces[i];
    Value offset = getInteger(
        builder, loc, getNumElementsOf(p.getType()) - restSize, 64);
    pointers->back() = LLVM::GEPOp::create(
        builder, loc, pointers->back().getType(),
        getElementTypeOf(p.getType()), (*pointers)[4], offset);
  }
  SmallVector<Value> arguments = {
      getMatrixList(builder, loc, *op.getLayout(),
                    getElementTypeOf(op.getInput().getType()))};
  llvm::append_range(arguments, *pointers);
  calls->create(builder, loc, "ddphook_rt_project", Type(), arguments);
  op.erase();
  return success();
}

LogicalResult ConvertDDPToRuntimePass::convert(ReconstructOp op) {
  OpBuilder builder(op);
  Location loc = op.getLoc();
  Value error = op.getMatrix() ? op.getDestination().back() : Value();
  FailureOr<SmallVector<Value>> pointers =
      getPointers(builder, op,
                  {op.getP(), op.getQ(), op.getRest(), op.getMatrix(),
                   op.getDestination().front(), error});
  if (failed(pointers))
    return failure();
  SmallVector<Value> arguments = {
      getMatrixList(builder, loc, *op.getLayout(),
                    getElementTypeOf(op.getP().getType()))};
  llvm::append_range(arguments, *pointers);
  int64_t group =
      op.getGroup() ? int64_t(groupNumbers.lookup(*op.getGroup())) : -1;
  arguments.push_back(getInteger(builder, loc, group, 32));
  calls->create(builder, loc, "ddphook_rt_reconstruct", Type(), arguments);
  op.erase();
  return success();
}

//===----------------------------------------------------------------------===//
// State
//===----------------------------------------------------------------------===//

LogicalResult ConvertDDPToRuntimePass::convertStateBuffer(StateBufferOp op) {
  OpBuilder builder(op);
  Value number = getInteger(builder, op.getLoc(),
                            stateNumbers.lookup(op.getState()), 32);
  Value pointer =
      calls
          ->create(builder, op.getLoc(), "ddphook_rt_state",
                   LLVM::LLVMPointerType::get(&getContext()), {number})
          .getResult();
  op.replaceAllUsesWith(createMemRef(builder, op.getLoc(), pointer,
                                     cast<MemRefType>(op.getType())));
  op.erase();
  return success();
}

LogicalResult ConvertDDPToRuntimePass::convert(RandomNormalOp op) {
  OpBuilder builder(op);
  Location loc = op.getLoc();
  FailureOr<SmallVector<Value>> pointers =
      getPointers(builder, op, {op.getDestination()});
  if (failed(pointers))
    return failure();
  auto pointerType = LLVM::LLVMPointerType::get(&getContext());
  Value generator = calls
                        ->create(builder, loc, "ddphook_rt_state", pointerType,
                                 {getInteger(builder, loc,
                                             stateNumbers.lookup(
                                                 op.getGenerator()),
                                             32)})
                        .getResult();
  ArrayRef<int64_t> draws = op.getDraws();
  auto arrayType = LLVM::LLVMArrayType::get(builder.getI64Type(), draws.size());
  OpBuilder atStart = OpBuilder::atBlockBegin(getOperation().getBody());
  auto sizes = LLVM::GlobalOp::create(
      atStart, loc, arrayType, /*isConstant=*/true, LLVM::Linkage::Internal,
      "__ddphook_draws_" + std::to_string(numDraws++),
      DenseIntElementsAttr::get(
          RankedTensorType::get({int64_t(draws.size())}, builder.getI64Type()),
          draws));
  Type type = op.getDestination().getType();
  calls->create(
      builder, loc, "ddphook_rt_random_normal", Type(),
      {generator, LLVM::AddressOfOp::create(builder, loc, sizes),
       getInteger(builder, loc, draws.size(), 64), pointers->front(),
       getInteger(builder, loc, getDtypeValue(getElementTypeOf(type)), 32)});
  op.erase();
  return success();
}

//===----------------------------------------------------------------------===//
// Reports
//===----------------------------------------------------------------------===//

LogicalResult ConvertDDPToRuntimePass::convert(IsFiniteOp op) {
  OpBuilder builder(op);
  Location loc = op.getLoc();
  FailureOr<SmallVector<Value>> pointers =
      getPointers(builder, op, {op.getInput()});
  if (failed(pointers))
    return failure();
  Type type = op.getInput().getType();
  Value result =
      calls
          ->create(builder, loc, "ddphook_rt_is_finite", builder.getI32Type(),
                   {pointers->front(),
                    getInteger(builder, loc, getNumElementsOf(type), 64),
                    getInteger(builder, loc,
                               getDtypeValue(getElementTypeOf(type)), 32)})
          .getResult();
  op.replaceAllUsesWith(
      Value(LLVM::ICmpOp::create(builder, loc, LLVM::ICmpPredicate::ne, result,
                                 getInteger(builder, loc, 0, 32))));
  op.erase();
  return success();
}

LogicalResult ConvertDDPToRuntimePass::convert(CountCompressionOp op) {
  auto bucket = bucketNumbers.find(op.getBucketName());
  if (bucket == bucketNumbers.end())
    return op.emitOpError() << "expected a bucket that 'ddp.bucket_info' "
                            << "describes, but got " << op.getBucketNameAttr();
  OpBuilder builder(op);
  Location loc = op.getLoc();
  calls->create(builder, loc, "ddphook_rt_count_compression", Type(),
                {getInteger(builder, loc, bucket->second, 32),
                 getInteger(builder, loc, op.getBefore(), 64),
                 getInteger(builder, loc, op.getAfter(), 64),
                 op.getIteration(),
                 getInteger(builder, loc, op.getFrequency(), 64)});
  op.erase();
  return success();
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

LogicalResult ConvertDDPToRuntimePass::collectEntries() {
  WalkResult result = getOperation().walk([&](func::FuncOp function) {
    if (function.isExternal() || !function.isPublic())
      return WalkResult::skip();
    std::string why;
    auto entry = cast<FunctionOpInterface>(function.getOperation());
    if (isPlannable(entry, why)) {
      plan.entries.push_back(entry);
      return WalkResult::skip();
    }
    // What does not communicate need not be callable through the plan.
    bool usesDDP = function
                       .walk([](Operation *op) {
                         return isa<DDPDialect>(op->getDialect())
                                    ? WalkResult::interrupt()
                                    : WalkResult::advance();
                       })
                       .wasInterrupted();
    if (!usesDDP)
      return WalkResult::skip();
    function.emitOpError() << why;
    return WalkResult::interrupt();
  });
  return failure(result.wasInterrupted());
}

/// Removes the dialect's attributes from a function's arguments and results:
/// all at once, since each change makes a new list of all of them.
static void removeDDPAttrs(FunctionOpInterface function) {
  auto filter = [](ArrayAttr lists) {
    SmallVector<DictionaryAttr> kept;
    for (auto attrs : lists.getAsRange<DictionaryAttr>()) {
      SmallVector<NamedAttribute> others;
      for (NamedAttribute attr : attrs)
        if (!isa_and_nonnull<DDPDialect>(attr.getNameDialect()))
          others.push_back(attr);
      kept.push_back(DictionaryAttr::get(lists.getContext(), others));
    }
    return kept;
  };
  if (ArrayAttr attrs = function.getArgAttrsAttr())
    function.setAllArgAttrs(filter(attrs));
  if (ArrayAttr attrs = function.getResAttrsAttr())
    function.setAllResultAttrs(filter(attrs));
}

void ConvertDDPToRuntimePass::cleanUp() {
  for (Operation &op : llvm::make_early_inc_range(*getOperation().getBody()))
    if (isa<ProcessGroupOp, BucketInfoOp, StateOp>(op))
      op.erase();
  getOperation()->removeAttr(DDPDialect::kHookAttrName);
  getOperation().walk([](FunctionOpInterface function) {
    function->removeAttr(DDPDialect::kHookAttrName);
    function->removeAttr(DDPDialect::kResultArgumentsAttrName);
    removeDDPAttrs(function);
  });
}

LogicalResult ConvertDDPToRuntimePass::checkNothingIsLeft() {
  WalkResult result = getOperation().walk([](Operation *op) {
    if (!isa_and_nonnull<DDPDialect>(op->getDialect()))
      return WalkResult::advance();
    op->emitOpError() << "could not be converted to a call of the runtime";
    return WalkResult::interrupt();
  });
  return failure(result.wasInterrupted());
}

void ConvertDDPToRuntimePass::runOnOperation() {
  ModuleOp module = getOperation();
  if (Operation *existing = module.lookupSymbol(kPlanSymbol)) {
    existing->emitError() << "expected a module without a plan: it was "
                          << "converted before";
    return signalPassFailure();
  }
  plan = PlanContents();
  groupNumbers.clear();
  stateNumbers.clear();
  bucketNumbers.clear();
  listNumbers.clear();
  numDraws = 0;

  for (auto group : module.getOps<ProcessGroupOp>()) {
    groupNumbers[group.getSymName()] = plan.groups.size();
    plan.groups.push_back(group);
  }
  for (auto state : module.getOps<StateOp>()) {
    stateNumbers[state.getSymName()] = plan.states.size();
    plan.states.push_back(state);
  }
  for (auto bucket : module.getOps<BucketInfoOp>()) {
    bucketNumbers[bucket.getBucketName()] = plan.buckets.size();
    plan.buckets.push_back(bucket);
  }
  if (failed(collectEntries()))
    return signalPassFailure();

  OpBuilder atStart = OpBuilder::atBlockBegin(module.getBody());
  auto pointerType = LLVM::LLVMPointerType::get(&getContext());
  auto handleSlot = LLVM::GlobalOp::create(
      atStart, module.getLoc(), pointerType, /*isConstant=*/false,
      LLVM::Linkage::Internal, kHandleSymbol, /*value=*/Attribute());
  {
    OpBuilder initializer(&getContext());
    initializer.createBlock(&handleSlot.getInitializerRegion());
    Value null =
        LLVM::ZeroOp::create(initializer, module.getLoc(), pointerType);
    LLVM::ReturnOp::create(initializer, module.getLoc(), null);
  }
  calls.emplace(module, handleSlot);

  SmallVector<Operation *> ops;
  module.walk([&](Operation *op) {
    if (isa<AlgebraOpInterface, ArenaOp, CountCompressionOp, IsFiniteOp,
            StateBufferOp, ViewOp>(op))
      ops.push_back(op);
    if (auto arena = dyn_cast<ArenaOp>(op))
      plan.arenaBytes = std::max(
          plan.arenaBytes, cast<MemRefType>(arena.getType()).getNumElements());
  });
  for (Operation *op : ops) {
    // Algebra on tensors and buckets is reported below.
    if (isa<AlgebraOpInterface, IsFiniteOp>(op) &&
        !llvm::all_of(op->getOperandTypes(), llvm::IsaPred<MemRefType>))
      continue;
    LogicalResult converted =
        llvm::TypeSwitch<Operation *, LogicalResult>(op)
            .Case([&](ViewOp view) { return convertView(view); })
            .Case([&](ArenaOp arena) { return convertArena(arena); })
            .Case([&](StateBufferOp state) { return convertStateBuffer(state); })
            .Case([&](AddOp add) { return convertBinary(add, "ddphook_rt_add"); })
            .Case([&](SubOp sub) {
              return convertBinary(sub, "ddphook_rt_subtract");
            })
            .Case<AllReduceOp, CastOp, ScaleOp, CountCompressionOp, IsFiniteOp,
                  MatmulOp, OrthogonalizeOp,
                  ProjectOp, ReconstructOp, RandomNormalOp>(
                [&](auto algebra) { return convert(algebra); })
            .Default([](Operation *) { return success(); }); // reported below
    if (failed(converted))
      return signalPassFailure();
  }

  std::string text = writePlan(plan);
  LLVM::GlobalOp::create(
      atStart, module.getLoc(),
      LLVM::LLVMArrayType::get(atStart.getI8Type(), text.size()),
      /*isConstant=*/true, LLVM::Linkage::Internal, kPlanSymbol,
      atStart.getStringAttr(text));
  cleanUp();
  if (failed(checkNothingIsLeft()))
    signalPassFailure();
}
