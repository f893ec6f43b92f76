// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-flatten: turns buckets into 1-D tensors, and operations on buckets into
// their flat counterparts in destination-passing style, each with a new tensor
// as its destination.

#include "../Analysis/ProgramWalk.h"
#include "Utils/Arrays.h"

#include "mlir/IR/AttrTypeSubElements.h"
#include "llvm/ADT/TypeSwitch.h"

#define GEN_PASS_DEF_DDPFLATTENPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

static Type flatten(Type type) {
  if (auto bucket = dyn_cast<BucketType>(type))
    return bucket.getFlatType();
  return type;
}

/// Returns `bucket` as a flat tensor. Buckets change their types in place when
/// their definition is visited; until then casts connect flat operations to
/// buckets.
static Value asFlat(OpBuilder &builder, Value bucket) {
  auto type = cast<BucketType>(bucket.getType());
  return UnrealizedConversionCastOp::create(
             builder, bucket.getLoc(), TypeRange(type.getFlatType()), bucket)
      .getResult(0);
}

/// Replaces the results of `op` by the values in `flat`, one for one.
static void replaceByFlat(OpBuilder &builder, Operation *op, ValueRange flat) {
  for (auto [result, value] : llvm::zip(op->getResults(), flat)) {
    if (result.getType() != value.getType())
      value = UnrealizedConversionCastOp::create(
                  builder, op->getLoc(), TypeRange(result.getType()), value)
                  .getResult(0);
    result.replaceAllUsesWith(value);
  }
  op->erase();
}

/// Returns the elements of `runs`, of flat tensors, as one tensor: a slice, or
/// a concat of them.
static Value createFromRuns(OpBuilder &builder, Location loc,
                            ArrayRef<ElementRun> runs, RankedTensorType type) {
  SmallVector<Value> parts;
  for (const ElementRun &run : runs)
    parts.push_back(
        createSlice(builder, loc, run.source, run.offset, run.size));
  if (parts.size() == 1)
    return parts.front();
  return ConcatOp::create(builder, loc, type, parts);
}

static void flattenOp(ExtractOp op) {
  auto bucket = cast<BucketType>(op.getBucket().getType());
  RankedTensorType type = cast<BucketType>(op.getType()).getFlatType();
  OpBuilder builder(op);
  Value flat = asFlat(builder, op.getBucket());
  SmallVector<ElementRun> runs;
  for (int64_t member : op.getMembers())
    appendRun(runs,
              {flat, bucket.getOffset(member), bucket.getNumElements(member)});
  if (runs.empty())
    runs.push_back({flat, 0, 0});
  replaceByFlat(builder, op, createFromRuns(builder, op.getLoc(), runs, type));
}

/// Splits the operands of a concat with an order into members and joins these
/// in the result's order.
static void flattenOp(ConcatOp op) {
  OpBuilder builder(op);
  auto type = cast<BucketType>(op.getType());
  ArrayRef<int64_t> order = *op.getOrder();
  SmallVector<ElementRun> byPlace(order.size());
  unsigned next = 0;
  for (Value part : op.getParts()) {
    auto bucket = cast<BucketType>(part.getType());
    Value flat = asFlat(builder, part);
    int64_t offset = 0;
    for (unsigned member = 0; member < bucket.getNumMembers(); ++member) {
      int64_t size = bucket.getNumElements(member);
      byPlace[order[next++]] = {flat, offset, size};
      offset += size;
    }
  }
  SmallVector<ElementRun> runs;
  for (const ElementRun &run : byPlace)
    appendRun(runs, run);
  replaceByFlat(builder, op,
                createFromRuns(builder, op.getLoc(), runs, type.getFlatType()));
}

static void flattenOp(ResizeOp op) {
  OpBuilder builder(op);
  Location loc = op.getLoc();
  RankedTensorType type = cast<BucketType>(op.getType()).getFlatType();
  Value flat = asFlat(builder, op.getBucket());
  int64_t missing = type.getNumElements() - getNumElementsOf(flat.getType());
  if (missing <= 0)
    return replaceByFlat(
        builder, op, createSlice(builder, loc, flat, 0, type.getNumElements()));
  Value zero = arith::ConstantOp::create(
      builder, loc, builder.getZeroAttr(type.getElementType()));
  Value empty =
      tensor::EmptyOp::create(builder, loc, {missing}, type.getElementType());
  Value zeros = linalg::FillOp::create(builder, loc, zero, empty).getResult(0);
  replaceByFlat(builder, op,
                ConcatOp::create(builder, loc, type, ValueRange{flat, zeros})
                    .getResult());
}

/// True if the elements of a slice are adjacent in its source.
static bool isContiguous(tensor::ExtractSliceOp slice) {
  auto source = cast<RankedTensorType>(slice.getSource().getType());
  bool isInside = false; // past the first dimension of more than one index
  for (auto [size, stride, whole] :
       llvm::zip(slice.getStaticSizes(), slice.getStaticStrides(),
                 source.getShape())) {
    if (isInside ? size != whole : size != 1 && stride != 1)
      return false;
    isInside |= size != 1;
  }
  return true;
}

/// True if a tensor may be in memory with gaps after bufferization, as a column
/// is. Returns true for values of unknown origin.
static bool mayHaveGaps(Value tensor) {
  // The tensor, and the values whose memory it may share.
  llvm::SetVector<Value> values;
  values.insert(tensor);
  for (unsigned i = 0; i < values.size(); ++i) {
    Value value = values[i];
    auto result = dyn_cast<OpResult>(value);
    if (!result) {
      Block *block = value.getParentBlock();
      if (!isa<FunctionOpInterface>(block->getParentOp()) ||
          !block->isEntryBlock())
        return true;
      continue;
    }
    Operation *op = result.getOwner();
    if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op)) {
      if (!isContiguous(slice))
        return true;
      values.insert(slice.getSource());
    } else if (isa<tensor::CollapseShapeOp, tensor::ExpandShapeOp>(op)) {
      values.insert(op->getOperand(0));
    } else if (auto insert = dyn_cast<tensor::InsertSliceOp>(op)) {
      values.insert(insert.getDest());
    } else if (auto linalg = dyn_cast<linalg::LinalgOp>(op)) {
      values.insert(linalg.getDpsInits()[result.getResultNumber()]);
    } else if (isa<CallOpInterface>(op)) {
      // `ddp-fold-results` may replace a result by an equal operand.
      for (Value operand : op->getOperands())
        if (operand.getType() == result.getType())
          values.insert(operand);
    } else if (!isa<DDPDialect>(op->getDialect()) &&
               !isa<tensor::EmptyOp, bufferization::AllocTensorOp>(op) &&
               !op->hasTrait<OpTrait::ConstantLike>()) {
      return true;
    }
  }
  return false;
}

/// Returns an operand as a flat array without gaps.
static Value asOperand(OpBuilder &builder, Location loc, Value value) {
  if (isa<BucketType>(value.getType()))
    return asFlat(builder, value);
  if (!isa<RankedTensorType>(value.getType()) || !mayHaveGaps(value))
    return value;
  return createCopy(builder, loc, value);
}

/// Replaces `op` by its counterpart `ddp.flat.*`, whose operands are the flat
/// operands of `op` and then a new tensor as the destination of each result.
/// Both have the same attributes, as far as the counterpart has them; it also
/// gets `layout` and, if it has several optional operands, the sizes of its
/// `segments`.
static void replaceByTwin(Operation *op, MatrixListAttr layout = {},
                          ArrayRef<int32_t> segments = {}) {
  OpBuilder builder(op);
  OperationState twin(op->getLoc(), (DDPDialect::getDialectNamespace() +
                                     ".flat." + op->getName().stripDialect())
                                        .str());
  for (Value operand : op->getOperands())
    twin.addOperands(asOperand(builder, op->getLoc(), operand));
  for (Type type : op->getResultTypes()) {
    Value destination = tensor::EmptyOp::create(builder, op->getLoc(),
                                                flatten(type), ValueRange());
    twin.addOperands(destination);
    twin.addTypes(destination.getType());
  }
  for (StringAttr name : twin.name.getAttributeNames())
    if (Attribute value = op->getInherentAttr(name).value_or(Attribute()))
      twin.addAttribute(name, value);
  if (layout)
    twin.attributes.set("layout", layout);
  if (!segments.empty())
    twin.attributes.set("operandSegmentSizes",
                        builder.getDenseI32ArrayAttr(segments));
  // The dialect's other attributes have served their purpose.
  for (NamedAttribute attribute : op->getDiscardableAttrs())
    if (!isa_and_nonnull<DDPDialect>(attribute.getNameDialect()) ||
        llvm::is_contained({DDPDialect::kErrorAttrName,
                            DDPDialect::kAssignmentAttrName,
                            DDPDialect::kCompressesAttrName},
                           attribute.getName()))
      twin.attributes.append(attribute);
  replaceByFlat(builder, op, builder.create(twin)->getResults());
}

/// Keeps the operation: a bucket operand changes its type in place.
static void flattenOp(IsFiniteOp op) {
  OpBuilder builder(op);
  if (!isa<BucketType>(op.getInput().getType()))
    op.getInputMutable().assign(asOperand(builder, op.getLoc(), op.getInput()));
}

static void flattenOp(ProjectOp op) {
  int32_t numErrors = op.getError() ? 1 : 0, numValues = op->getNumResults();
  replaceByTwin(op, op.inferLayout(), {1, numErrors, 1, numValues});
}

static void flattenOp(ReconstructOp op) {
  int32_t numRests = op.getRest() ? 1 : 0, numValues = op->getNumResults();
  int32_t numMatrices = op.getMatrix() ? 1 : 0;
  replaceByTwin(op, op.inferLayout(), {1, 1, numRests, numMatrices, numValues});
}

/// Replaces a start and its waits. The collective reads its operand until then,
/// so the waits keep that too, unless it is itself in flight.
static void replaceFuture(OpBuilder &builder, Operation *start,
                          FlatStartOpInterface flat) {
  Value kept = flat.getCondition() ? Value() : flat.getInputMutable().get();
  for (Operation *wait : llvm::make_early_inc_range(start->getUsers())) {
    builder.setInsertionPoint(wait);
    auto ended = FlatWaitOp::create(builder, wait->getLoc(), flat.getInFlight(),
                                    flat.getTicket(), kept);
    replaceByFlat(builder, wait, ended.getResult());
  }
  start->erase();
}

static void flattenOp(AllReduceStartOp start) {
  OpBuilder builder(start);
  Value input = asOperand(builder, start.getLoc(), start.getInput());
  // A start that does not run yields its operand, which is thus in flight.
  bool isInPlace = bool(start.getCondition());
  Value destination = input;
  if (!isInPlace)
    destination = tensor::EmptyOp::create(builder, start.getLoc(),
                                          input.getType(), ValueRange());
  auto flat = FlatAllReduceStartOp::create(
      builder, start.getLoc(), start.getReductionAttr(), input,
      start.getGroupAttr(), start.getWireAttr(), start.getStep(),
      start.getBucketNameAttr(), destination, start.getCondition());
  setErrorState(flat, getErrorState(start));
  replaceFuture(builder, start, flat);
}

static void flattenOp(ExchangeStartOp start) {
  OpBuilder builder(start);
  Location loc = start.getLoc();
  Value input = asOperand(builder, loc, start.getInput());
  auto future = cast<FutureType>(start.getFuture().getType());
  Value destination = tensor::EmptyOp::create(
      builder, loc, flatten(future.getValueType()), ValueRange());
  auto flat = FlatExchangeStartOp::create(
      builder, loc, start.getKindAttr(), start.getReductionAttr(), input,
      start.getFromAttr(), start.getGroupAttr(), start.getWireAttr(),
      start.getStep(), start.getBucketNameAttr(), destination);
  replaceFuture(builder, start, flat);
}

namespace {
struct FlattenPass : public ddp::impl::DDPFlattenPassBase<FlattenPass> {
  void runOnOperation() override {
    SmallVector<Operation *> replaced;
    walkProgram(getOperation(), [&](Operation *op) {
      // A wait is replaced with its start. A concat without an order may stay.
      auto concat = dyn_cast<ConcatOp>(op);
      if (!isa<WaitOp>(op) && (!concat || concat.getOrder()))
        replaced.push_back(op);
    });
    for (Operation *op : replaced)
      llvm::TypeSwitch<Operation *>(op)
          .Case<AddOp, AllGatherOp, AllReduceOp, AllToAllOp, BroadcastOp,
                CastOp, DensifyOp, EncodingErrorOp, RandomNormalOp,
                ReduceScatterOp, ScaleOp, SparsifyOp, SubOp>(
              [](Operation *known) { replaceByTwin(known); })
          .Case<MatmulOp, OrthogonalizeOp>(
              [](auto known) { replaceByTwin(known, known.inferLayout()); })
          .Case<AllReduceStartOp, ConcatOp, ExchangeStartOp, ExtractOp,
                IsFiniteOp, ProjectOp, ReconstructOp, ResizeOp>(
              [](auto known) { flattenOp(known); });

    // Types are changed in place: every operation that can hold a bucket
    // belongs to this dialect or takes any type.
    AttrTypeReplacer replacer;
    replacer.addReplacement(
        [](BucketType bucket) -> Type { return bucket.getFlatType(); });
    walkProgram(getOperation(), [&](Operation *op) {
      // A function's attributes have its type; those of states keep theirs.
      replacer.replaceElementsIn(op, isa<FunctionOpInterface>(op),
                                 /*replaceLocs=*/false, /*replaceTypes=*/true);
    });
    walkProgram(getOperation(), [&](UnrealizedConversionCastOp cast) {
      if (cast.getNumOperands() == 1 &&
          cast.getOperandTypes() == cast.getResultTypes()) {
        cast.replaceAllUsesWith(cast.getOperands());
        cast.erase();
      }
    });
  }
};
} // namespace
