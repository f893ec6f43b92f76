// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "GridExchange.h"
#include "../Utils/RankLists.h"
#include "ddphook/Dialect/DDP/IR/ElementTypes.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"

using namespace mlir;
using namespace mlir::ddp;

int64_t GridExchange::getNumParts() const {
  int64_t number = 1;
  for (int16_t axis : axes)
    number *= shard::GridOp(grid).getShape()[axis];
  return number;
}

std::optional<GridExchange>
mlir::ddp::matchExchange(Operation *op, SymbolTableCollection &symbols) {
  if (auto scatter = dyn_cast<shard::ReduceScatterOp>(op))
    return GridExchange{op,
                        CollectiveKind::ReduceScatter,
                        shard::getGrid(scatter, symbols),
                        llvm::to_vector(scatter.getGridAxes()),
                        scatter.getScatterAxis().getSExtValue(),
                        scatter.getReduction()};
  if (auto gather = dyn_cast<shard::AllGatherOp>(op))
    return GridExchange{op,
                        CollectiveKind::AllGather,
                        shard::getGrid(gather, symbols),
                        llvm::to_vector(gather.getGridAxes()),
                        gather.getGatherAxis().getSExtValue(),
                        std::nullopt};
  if (auto exchange = dyn_cast<shard::AllToAllOp>(op))
    return GridExchange{op,
                        CollectiveKind::AllToAll,
                        shard::getGrid(exchange, symbols),
                        llvm::to_vector(exchange.getGridAxes()),
                        exchange.getSplitAxis().getSExtValue(),
                        std::nullopt};
  if (auto broadcast = dyn_cast<shard::BroadcastOp>(op))
    return GridExchange{op,
                        CollectiveKind::Broadcast,
                        shard::getGrid(broadcast, symbols),
                        llvm::to_vector(broadcast.getGridAxes()),
                        /*dimension=*/0,
                        std::nullopt};
  return std::nullopt;
}

/// Returns the position of a broadcast's root in its group; -1 if the indices
/// are not constant.
static int64_t getRoot(const GridExchange &exchange) {
  ArrayRef<int64_t> shape = shard::GridOp(exchange.grid).getShape();
  ArrayRef<int64_t> indices = cast<shard::BroadcastOp>(exchange.op).getRoot();
  if (indices.size() != exchange.axes.size())
    return -1;
  int64_t root = 0;
  for (auto [axis, index] : llvm::zip(exchange.axes, indices)) {
    if (index < 0 || index >= shape[axis])
      return -1;
    root = root * shape[axis] + index;
  }
  return root;
}

static int64_t getConcatAxis(const GridExchange &exchange) {
  return cast<shard::AllToAllOp>(exchange.op).getConcatAxis().getSExtValue();
}

/// Returns true if `whole` is `number` times `part` along `dimension`.
static bool isInParts(RankedTensorType whole, RankedTensorType part,
                      int64_t dimension, int64_t number) {
  if (whole.getRank() != part.getRank() || dimension < 0 ||
      dimension >= whole.getRank() ||
      whole.getElementType() != part.getElementType())
    return false;
  SmallVector<int64_t> shape(whole.getShape());
  if (shape[dimension] % number != 0)
    return false;
  shape[dimension] /= number;
  return part.getShape() == ArrayRef(shape);
}

/// Returns true if the types are those of a tensor and its equal parts.
static bool hasFittingTypes(const GridExchange &exchange, RankedTensorType from,
                            RankedTensorType to) {
  int64_t number = exchange.getNumParts(), dimension = exchange.dimension;
  switch (exchange.collective) {
  case CollectiveKind::ReduceScatter:
    return isInParts(from, to, dimension, number);
  case CollectiveKind::AllGather:
    return isInParts(to, from, dimension, number);
  case CollectiveKind::AllToAll: {
    if (dimension < 0 || dimension >= from.getRank())
      return false;
    SmallVector<int64_t> shape(from.getShape());
    shape[dimension] /= number;
    auto part = from.clone(shape);
    return isInParts(from, part, dimension, number) &&
           isInParts(to, part, getConcatAxis(exchange), number);
  }
  default:
    return true;
  }
}

std::string mlir::ddp::findObstacle(const GridExchange &exchange) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  auto from = cast<RankedTensorType>(exchange.op->getOperand(0).getType());
  auto to = cast<RankedTensorType>(exchange.op->getResult(0).getType());
  ArrayRef<int64_t> grid = shard::GridOp(exchange.grid).getShape();
  if (exchange.kind && *exchange.kind != shard::ReductionKind::Sum &&
      *exchange.kind != shard::ReductionKind::Average)
    stream << "expected the reduction sum or average, but got "
           << shard::stringifyReductionKind(*exchange.kind);
  else if (!from.hasStaticShape() || !to.hasStaticShape() ||
           !isDtype(from.getElementType()))
    stream << "expected statically shaped tensors of " << getDtypeNames()
           << ", but got '" << from << "'";
  else if (ShapedType::isDynamicShape(grid) || !countRanks(grid) ||
           llvm::is_contained(grid, 0))
    stream << "expected a grid of static shape with at most " << kMaxRanks
           << " processes";
  else if (exchange.axes.empty())
    stream << "expected axes of the grid";
  // A process group numbers its ranks in ascending order.
  else if (!llvm::is_sorted(exchange.axes))
    stream << "expected the grid's axes in ascending order, which is the order "
              "of a process group's parts";
  else if (exchange.collective == CollectiveKind::Broadcast &&
           getRoot(exchange) < 0)
    stream << "expected a root of constant indices along the axes";
  else if (!hasFittingTypes(exchange, from, to))
    stream << "expected " << exchange.getNumParts()
           << " equal parts along dimension " << exchange.dimension
           << ", but got '" << from << "' and '" << to << "'";
  return text;
}

/// Returns the order of dimensions in which each part is contiguous, or nothing
/// if it already is.
static SmallVector<int64_t> getOrder(RankedTensorType type, int64_t dimension) {
  SmallVector<int64_t> order;
  if (llvm::all_of(type.getShape().take_front(dimension),
                   [](int64_t size) { return size == 1; }))
    return order;
  order.push_back(dimension);
  for (int64_t i = 0; i < type.getRank(); ++i)
    if (i != dimension)
      order.push_back(i);
  return order;
}

static RankedTensorType permute(RankedTensorType type,
                                ArrayRef<int64_t> order) {
  return order.empty() ? type
                       : type.clone(applyPermutation(type.getShape(), order));
}

static Value transpose(OpBuilder &builder, Location loc, Value value,
                       ArrayRef<int64_t> order) {
  if (order.empty())
    return value;
  auto type = permute(cast<RankedTensorType>(value.getType()), order);
  Value empty = tensor::EmptyOp::create(builder, loc, type.getShape(),
                                        type.getElementType());
  return linalg::TransposeOp::create(builder, loc, value, empty, order)
      ->getResult(0);
}

/// Returns the reassociation that merges two dimensions into `dimension` of a
/// tensor of this rank.
static SmallVector<ReassociationIndices> mergeAt(int64_t dimension,
                                                 int64_t rank) {
  SmallVector<ReassociationIndices> groups;
  for (int64_t i = 0, next = 0; i < rank; ++i) {
    groups.push_back({next++});
    if (i == dimension)
      groups.back().push_back(next++);
  }
  return groups;
}

/// Splits a dimension into the number of the part and the index within it.
static Value splitDimension(OpBuilder &builder, Location loc, Value value,
                            int64_t dimension, int64_t numParts) {
  auto type = cast<RankedTensorType>(value.getType());
  SmallVector<int64_t> shape(type.getShape());
  shape[dimension] /= numParts;
  shape.insert(shape.begin() + dimension, numParts);
  return tensor::ExpandShapeOp::create(builder, loc, type.clone(shape), value,
                                       mergeAt(dimension, type.getRank()));
}

static Value moveDimension(OpBuilder &builder, Location loc, Value value,
                           int64_t from, int64_t to) {
  auto order = llvm::to_vector(
      llvm::seq<int64_t>(cast<RankedTensorType>(value.getType()).getRank()));
  order.erase(order.begin() + from);
  order.insert(order.begin() + to, from);
  return from == to ? value : transpose(builder, loc, value, order);
}

/// Moves the parts to the first dimension for the exchange, and the received
/// parts to the dimension along which they are concatenated.
static Value buildAllToAll(OpBuilder &builder, const GridExchange &exchange,
                           ProcessGroupOp group) {
  Location loc = exchange.op->getLoc();
  int64_t split = exchange.dimension, concat = getConcatAxis(exchange);
  Value value = splitDimension(builder, loc, exchange.op->getOperand(0), split,
                               exchange.getNumParts());
  value = moveDimension(builder, loc, value, split, 0);
  value = AllToAllOp::create(builder, loc, value.getType(), value,
                             FlatSymbolRefAttr::get(group.getSymNameAttr()));
  value = moveDimension(builder, loc, value, 0, concat);
  auto to = cast<RankedTensorType>(exchange.op->getResult(0).getType());
  return tensor::CollapseShapeOp::create(builder, loc, to, value,
                                         mergeAt(concat, to.getRank()));
}

Value mlir::ddp::buildExchange(OpBuilder &builder, const GridExchange &exchange,
                               ProcessGroupOp group, Attribute hook) {
  if (exchange.collective == CollectiveKind::AllToAll)
    return buildAllToAll(builder, exchange, group);
  if (exchange.collective == CollectiveKind::Broadcast)
    return BroadcastOp::create(builder, exchange.op->getLoc(),
                               exchange.op->getResult(0).getType(),
                               exchange.op->getOperand(0),
                               builder.getI64IntegerAttr(getRoot(exchange)),
                               FlatSymbolRefAttr::get(group.getSymNameAttr()));
  Location loc = exchange.op->getLoc();
  Value input = exchange.op->getOperand(0);
  auto from = cast<RankedTensorType>(input.getType());
  auto to = cast<RankedTensorType>(exchange.op->getResult(0).getType());
  SmallVector<int64_t> order = getOrder(from, exchange.dimension);
  RankedTensorType ordered = permute(to, order);
  auto name = FlatSymbolRefAttr::get(group.getSymNameAttr());
  SmallVector<ReassociationIndices> all = {
      llvm::to_vector<2>(llvm::seq<int64_t>(0, from.getRank()))};
  input = transpose(builder, loc, input, order);
  Value result;
  Operation *exchanged;
  if (exchange.kind) {
    auto reduction = *exchange.kind == shard::ReductionKind::Average
                         ? Reduction::Mean
                         : Reduction::Sum;
    auto scatter = ReduceScatterOp::create(
        builder, loc,
        RankedTensorType::get({to.getNumElements()}, to.getElementType()),
        ReductionAttr::get(builder.getContext(), reduction), input, name,
        /*wire=*/{}, /*step=*/{});
    exchanged = scatter;
    result = scatter.getResult();
    if (to.getRank() != 1)
      result =
          tensor::ExpandShapeOp::create(builder, loc, ordered, result, all);
  } else {
    if (from.getRank() != 1)
      input = tensor::CollapseShapeOp::create(builder, loc, input, all);
    auto gather = AllGatherOp::create(builder, loc, ordered, input, name,
                                      /*wire=*/{}, /*bucket_name=*/{});
    exchanged = gather;
    result = gather.getResult();
  }
  exchanged->setDiscardableAttrs(exchange.op->getDiscardableAttrDictionary());
  if (hook)
    exchanged->setAttr(DDPDialect::kHookAttrName, hook);
  return transpose(builder, loc, result, invertPermutationVector(order));
}
