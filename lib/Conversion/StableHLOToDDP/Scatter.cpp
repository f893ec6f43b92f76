// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-convert-stablehlo-scatter: converts StableHLO's scatter to loops over the
// updates. StableHLO's own lowering to linalg does not handle it, and the
// gradient of every indexing operation is one.

#include "Shardings.h"
#include "StableHLO.h"

#include "mlir/IR/ImplicitLocOpBuilder.h"

#define GEN_PASS_DEF_DDPCONVERTSTABLEHLOSCATTERPASS
#include "ddphook/Conversion/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
/// The dimension numbers of a scatter, checked for consistency.
struct Dimensions {
  static std::optional<Dimensions> read(Operation *op);

  RankedTensorType operand, indices, updates;
  /// The dimensions of the updates that select an index, in order.
  SmallVector<int64_t> scattered;
  /// For each dimension of the operand, the dimension of the updates along its
  /// window; -1 if the window has one element.
  SmallVector<int64_t> windows;
  /// For each dimension of the operand, its component in an index; -1 for none.
  SmallVector<int64_t> starts;
  /// For each dimension of the operand, the dimension of the updates for a
  /// batch dimension of operand and indices; -1 for none.
  SmallVector<int64_t> batches;
  /// The dimension of the indices that holds an index's components; their rank
  /// if an index is one number.
  int64_t vector;
};
} // namespace

/// Inverts `dimensions`: sets `places[dimensions[i]]` to `i`.
static bool number(ArrayRef<int64_t> dimensions,
                   MutableArrayRef<int64_t> places) {
  for (auto [i, dimension] : llvm::enumerate(dimensions)) {
    if (dimension < 0 || dimension >= int64_t(places.size()) ||
        places[dimension] != -1)
      return false;
    places[dimension] = i;
  }
  return true;
}

std::optional<Dimensions> Dimensions::read(Operation *op) {
  auto fields = readScatterNumbers(op->getAttr("scatter_dimension_numbers"));
  if (!fields || op->getNumOperands() != 3 || op->getNumResults() != 1 ||
      op->getResult(0).getType() != op->getOperand(0).getType())
    return std::nullopt;
  Dimensions result;
  auto types = {&result.operand, &result.indices, &result.updates};
  for (auto [type, value] : llvm::zip_equal(types, op->getOperands())) {
    *type = dyn_cast<RankedTensorType>(value.getType());
    if (!*type || !type->hasStaticShape())
      return std::nullopt;
  }
  int64_t rank = result.operand.getRank();
  SmallVector<int64_t> isInserted(rank, -1),
      isWindow(result.updates.getRank(), -1);
  SmallVector<int64_t> batch(rank, -1), isBatch(result.indices.getRank(), -1);
  result.starts.assign(rank, -1);
  ArrayRef<int64_t> vector = (*fields)["index_vector_dim"];
  ArrayRef<int64_t> ofIndices = (*fields)["scatter_indices_batching_dims"];
  if (vector.size() > 1 ||
      !number((*fields)["inserted_window_dims"], isInserted) ||
      !number((*fields)["update_window_dims"], isWindow) ||
      !number((*fields)["input_batching_dims"], batch) ||
      !number(ofIndices, isBatch) ||
      !number((*fields)["scatter_dims_to_operand_dims"], result.starts) ||
      (*fields)["input_batching_dims"].size() != ofIndices.size())
    return std::nullopt;
  result.vector = vector.empty() ? 0 : vector[0];
  int64_t indexRank = result.indices.getRank();
  if (result.vector < 0 || result.vector > indexRank)
    return std::nullopt;
  for (int64_t i = 0; i < result.updates.getRank(); ++i)
    if (isWindow[i] == -1)
      result.scattered.push_back(i);
  // Each component of an index addresses one dimension. Each dimension of the
  // indices except that of the components is a dimension of the updates.
  bool hasVector = result.vector < indexRank;
  int64_t size = hasVector ? result.indices.getDimSize(result.vector) : 1;
  if (size != int64_t((*fields)["scatter_dims_to_operand_dims"].size()) ||
      indexRank - hasVector != int64_t(result.scattered.size()))
    return std::nullopt;
  auto getScattered = [&](int64_t i) {
    return result.scattered[i - (i > result.vector)];
  };
  for (int64_t i = 0; i < indexRank; ++i)
    if (i != result.vector && result.indices.getDimSize(i) !=
                                  result.updates.getDimSize(getScattered(i)))
      return std::nullopt;
  result.batches.assign(rank, -1);
  result.windows.assign(rank, -1);
  ArrayRef<int64_t> windows = (*fields)["update_window_dims"];
  for (int64_t i = 0; i < rank; ++i) {
    if ((isInserted[i] != -1) + (batch[i] != -1) > 1 ||
        (batch[i] != -1 && result.starts[i] != -1))
      return std::nullopt;
    if (batch[i] != -1) {
      int64_t dimension = ofIndices[batch[i]];
      if (dimension == result.vector)
        return std::nullopt;
      result.batches[i] = getScattered(dimension);
      if (result.updates.getDimSize(result.batches[i]) !=
          result.operand.getDimSize(i))
        return std::nullopt;
    } else if (isInserted[i] == -1) {
      if (windows.empty() ||
          result.updates.getDimSize(windows[0]) > result.operand.getDimSize(i))
        return std::nullopt;
      result.windows[i] = windows[0];
      windows = windows.drop_front();
    }
  }
  return windows.empty() ? std::optional(result) : std::nullopt;
}

namespace {
/// Combines an old number with an update.
using Combiner = Value (*)(ImplicitLocOpBuilder &, Value, Value);

class Scatter {
public:
  Scatter(Operation *op, const Dimensions &dimensions, Combiner combine)
      : op(op), dimensions(dimensions), combine(combine),
        builder(op->getLoc(), op), indices(op->getOperand(1)),
        places(dimensions.updates.getRank()) {}
  Value run();

private:
  Value constant(int64_t value) {
    return arith::ConstantIndexOp::create(builder, value);
  }
  Value loop(ArrayRef<int64_t> over, Value result,
             function_ref<Value(Value)> body);
  Value readStarts();
  Value update(Value result);

  Operation *op;
  const Dimensions &dimensions;
  Combiner combine;
  ImplicitLocOpBuilder builder;
  /// Signed, because arith has no other integers.
  Value indices;
  /// The induction variables: the current index in the updates.
  SmallVector<Value> places;
  /// Where the window begins, for each dimension of the operand.
  SmallVector<Value> starts;
};
} // namespace

/// Builds a loop nest over these dimensions of the updates.
Value Scatter::loop(ArrayRef<int64_t> over, Value result,
                    function_ref<Value(Value)> body) {
  if (over.empty())
    return body(result);
  auto forOp = scf::ForOp::create(
      builder, constant(0), constant(dimensions.updates.getDimSize(over[0])),
      constant(1), result);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(forOp.getBody());
  places[over[0]] = forOp.getInductionVar();
  Value next = loop(over.drop_front(), forOp.getRegionIterArg(0), body);
  scf::YieldOp::create(builder, next);
  return forOp.getResult(0);
}

/// Reads the window's start. Returns if it is in the operand; null: always.
Value Scatter::readStarts() {
  Value isInside;
  starts.assign(dimensions.operand.getRank(), Value());
  for (auto [i, number] : llvm::enumerate(dimensions.starts)) {
    if (number == -1)
      continue;
    SmallVector<Value> index;
    unsigned next = 0;
    for (int64_t d = 0; d < dimensions.indices.getRank(); ++d)
      index.push_back(d == dimensions.vector
                          ? constant(number)
                          : places[dimensions.scattered[next++]]);
    Value element = tensor::ExtractOp::create(builder, indices, index);
    starts[i] =
        arith::IndexCastOp::create(builder, builder.getIndexType(), element);
    int64_t window = dimensions.windows[i];
    int64_t size = window == -1 ? 1 : dimensions.updates.getDimSize(window);
    Value last = constant(dimensions.operand.getDimSize(i) - size);
    // As unsigned numbers, negative ones are too large.
    Value isLow = arith::CmpIOp::create(builder, arith::CmpIPredicate::ule,
                                        starts[i], last);
    isInside =
        isInside ? arith::AndIOp::create(builder, isInside, isLow) : isLow;
  }
  return isInside;
}

/// Builds the body of the innermost loop: updates one element.
Value Scatter::update(Value result) {
  SmallVector<Value> place;
  for (int64_t i = 0; i < dimensions.operand.getRank(); ++i) {
    Value offset;
    if (dimensions.batches[i] != -1)
      offset = places[dimensions.batches[i]];
    else if (dimensions.windows[i] != -1)
      offset = places[dimensions.windows[i]];
    if (starts[i] && offset)
      place.push_back(arith::AddIOp::create(builder, starts[i], offset));
    else if (starts[i] || offset)
      place.push_back(starts[i] ? starts[i] : offset);
    else
      place.push_back(constant(0));
  }
  Value element = tensor::ExtractOp::create(builder, op->getOperand(2), places);
  Value old = tensor::ExtractOp::create(builder, result, place);
  return tensor::InsertOp::create(builder, combine(builder, old, element),
                                  result, place);
}

Value Scatter::run() {
  // No window fits into an empty operand.
  if (dimensions.operand.getNumElements() == 0)
    return op->getOperand(0);
  if (dimensions.indices.getElementType().isUnsignedInteger()) {
    OperationState state(op->getLoc(), "stablehlo.convert", indices,
                         RankedTensorType::get(dimensions.indices.getShape(),
                                               builder.getI64Type()));
    indices = builder.create(state)->getResult(0);
  }
  SmallVector<int64_t> windows;
  for (int64_t window : dimensions.windows)
    if (window != -1)
      windows.push_back(window);
  return loop(dimensions.scattered, op->getOperand(0), [&](Value result) {
    Value isInside = readStarts();
    auto updateWindow = [&](Value value) {
      return loop(windows, value, [&](Value v) { return update(v); });
    };
    if (!isInside)
      return updateWindow(result);
    auto branch =
        scf::IfOp::create(builder, result.getType(), isInside,
                          /*addThenBlock=*/true, /*addElseBlock=*/true);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(branch.thenBlock());
    scf::YieldOp::create(builder, updateWindow(result));
    builder.setInsertionPointToStart(branch.elseBlock());
    scf::YieldOp::create(builder, result);
    return branch.getResult(0);
  });
}

template <typename FloatOpT, typename IntOpT>
static Value combineBy(ImplicitLocOpBuilder &builder, Value old, Value update) {
  if (isa<FloatType>(old.getType()))
    return FloatOpT::create(builder, old, update);
  return IntOpT::create(builder, old, update);
}

static Value takeUpdate(ImplicitLocOpBuilder &, Value, Value update) {
  return update;
}

/// Returns the combiner of `op`'s region, or null if it is not supported.
static Combiner getCombiner(Operation *op, Type elementType) {
  if (op->getNumRegions() != 1 || !op->getRegion(0).hasOneBlock())
    return nullptr;
  Type number = RankedTensorType::get({}, elementType);
  Block &body = op->getRegion(0).front();
  auto yielded = getYielded(body, "stablehlo.return");
  if (yielded && yielded->size() == 1 && body.getNumArguments() == 2 &&
      (*yielded)[0] == body.getArgument(1) &&
      body.getArgument(1).getType() == number)
    return takeUpdate;
  // Booleans are added differently.
  if (elementType.isInteger(1))
    return nullptr;
  return llvm::StringSwitch<Combiner>(
             matchCombiner(op->getRegion(0), number).value_or(""))
      .Case("stablehlo.add", combineBy<arith::AddFOp, arith::AddIOp>)
      .Case("stablehlo.maximum", combineBy<arith::MaximumFOp, arith::MaxSIOp>)
      .Case("stablehlo.minimum", combineBy<arith::MinimumFOp, arith::MinSIOp>)
      .Case("stablehlo.multiply", combineBy<arith::MulFOp, arith::MulIOp>)
      .Default(nullptr);
}

static LogicalResult convertScatter(Operation *op) {
  if (op->getNumOperands() != 3)
    return op->emitOpError() << "expected one tensor, indices and updates, but "
                                "got "
                             << op->getNumOperands() << " operands";
  std::optional<Dimensions> dimensions = Dimensions::read(op);
  if (!dimensions)
    return op->emitOpError()
           << "expected a statically shaped tensor, indices and updates, and "
              "dimension numbers that fit them";
  Type elementType = dimensions->operand.getElementType();
  if (dimensions->updates.getElementType() != elementType ||
      !(isa<FloatType>(elementType) || elementType.isSignlessInteger()) ||
      !(dimensions->indices.getElementType().isSignlessInteger() ||
        dimensions->indices.getElementType().isUnsignedInteger()))
    return op->emitOpError()
           << "expected floating-point numbers or signless "
              "integers, and integers as indices, but got "
           << elementType << " and " << dimensions->indices.getElementType();
  Combiner combine = getCombiner(op, elementType);
  if (!combine)
    return op->emitOpError() << "expected its region to give the update, or to "
                                "combine both numbers by 'stablehlo.add', "
                                "'maximum', 'minimum' or 'multiply'";
  Value result = Scatter(op, *dimensions, combine).run();
  return replaceByValues(op, result);
}

namespace {
struct ConvertStableHLOScatterPass
    : public ddp::impl::DDPConvertStableHLOScatterPassBase<
          ConvertStableHLOScatterPass> {
  void runOnOperation() override {
    WalkResult result = getOperation().walk([](Operation *op) -> WalkResult {
      return isNamed(op, "stablehlo.scatter") ? convertScatter(op) : success();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
