// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "../Utils/RankLists.h"
#include "GridCollectives.h"
#include "ddphook/Dialect/DDP/IR/ElementTypes.h"

using namespace mlir;
using namespace mlir::ddp;

/// Returns the position of a broadcast's root in its group; -1 if the indices
/// are not constant.
static int64_t getRoot(const GridExchange &exchange,
                       ArrayRef<int64_t> indices) {
  ArrayRef<int64_t> shape = shard::GridOp(exchange.grid).getShape();
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

std::optional<GridExchange>
mlir::ddp::matchExchange(Operation *op, SymbolTableCollection &symbols) {
  auto make = [&](auto exchange, CollectiveKind kind) {
    shard::GridOp grid = shard::getGrid(exchange, symbols);
    SmallVector<int16_t> axes(exchange.getGridAxes());
    // In a grid of dynamic shape, findObstacle() refuses any size.
    std::optional<int64_t> size = countRanks(llvm::map_to_vector(
        axes, [&](int16_t axis) { return grid.getShape()[axis]; }));
    return GridExchange{{op, kind, size.value_or(0)}, grid, std::move(axes)};
  };
  std::optional<GridExchange> exchange;
  if (auto scatter = dyn_cast<shard::ReduceScatterOp>(op)) {
    exchange = make(scatter, CollectiveKind::ReduceScatter);
    exchange->dimension = scatter.getScatterAxis().getSExtValue();
    exchange->reductionKind = scatter.getReduction();
    if (scatter.getReduction() == shard::ReductionKind::Average)
      exchange->reduction = Reduction::Mean;
  } else if (auto gather = dyn_cast<shard::AllGatherOp>(op)) {
    exchange = make(gather, CollectiveKind::AllGather);
    exchange->dimension = gather.getGatherAxis().getSExtValue();
  } else if (auto allToAll = dyn_cast<shard::AllToAllOp>(op)) {
    exchange = make(allToAll, CollectiveKind::AllToAll);
    exchange->dimension = allToAll.getSplitAxis().getSExtValue();
    exchange->concatDimension = allToAll.getConcatAxis().getSExtValue();
  } else if (auto broadcast = dyn_cast<shard::BroadcastOp>(op)) {
    exchange = make(broadcast, CollectiveKind::Broadcast);
    exchange->root = getRoot(*exchange, broadcast.getRoot());
  }
  return exchange;
}

std::string mlir::ddp::findObstacle(const GridExchange &exchange) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  auto from = cast<RankedTensorType>(exchange.op->getOperand(0).getType());
  auto to = cast<RankedTensorType>(exchange.op->getResult(0).getType());
  ArrayRef<int64_t> grid = shard::GridOp(exchange.grid).getShape();
  if (exchange.reductionKind &&
      *exchange.reductionKind != shard::ReductionKind::Sum &&
      *exchange.reductionKind != shard::ReductionKind::Average)
    stream << "expected the reduction sum or average, but got "
           << shard::stringifyReductionKind(*exchange.reductionKind);
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
  else if (exchange.root < 0)
    stream << "expected a root of constant indices along the axes";
  else if (!exchange.hasFittingTypes())
    stream << "expected " << exchange.size << " equal parts along dimension "
           << exchange.dimension << ", but got '" << from << "' and '" << to
           << "'";
  return text;
}
