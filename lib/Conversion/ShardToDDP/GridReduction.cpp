// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Recognizes all-reduces of the shard dialect, and those that ddp cannot
// express.

#include "../Utils/RankLists.h"
#include "GridCollectives.h"
#include "ddphook/Dialect/DDP/IR/ElementTypes.h"

using namespace mlir;
using namespace mlir::ddp;

/// Returns the all-gather that completes an all-reduce with `scatter`.
static shard::AllGatherOp findGather(shard::ReduceScatterOp scatter) {
  if (!scatter.getResult().hasOneUse())
    return {};
  auto gather =
      dyn_cast<shard::AllGatherOp>(*scatter.getResult().getUsers().begin());
  // The order of the axes determines which process has which part.
  if (!gather || gather.getGridAttr() != scatter.getGridAttr() ||
      gather.getGridAxes() != scatter.getGridAxes() ||
      gather.getGatherAxis() != scatter.getScatterAxis() ||
      cast<ShapedType>(gather.getType()).getShape() !=
          scatter.getInput().getType().getShape())
    return {};
  return gather;
}

std::optional<GridReduction>
mlir::ddp::matchReduction(Operation *op, SymbolTableCollection &symbols) {
  auto make = [&](auto reduction, Operation *gather) {
    SmallVector<int16_t> axes(reduction.getGridAxes());
    llvm::sort(axes);
    return GridReduction{op, gather, shard::getGrid(reduction, symbols),
                         reduction.getReduction(), std::move(axes)};
  };
  if (auto allReduce = dyn_cast<shard::AllReduceOp>(op))
    return make(allReduce, nullptr);
  if (auto scatter = dyn_cast<shard::ReduceScatterOp>(op))
    if (shard::AllGatherOp gather = findGather(scatter))
      return make(scatter, gather);
  return std::nullopt;
}

static void print(raw_ostream &stream, shard::GridOp grid) {
  stream << "@" << grid.getSymName() << " has the shape ";
  llvm::interleave(
      grid.getShape(), stream,
      [&](int64_t size) {
        ShapedType::isDynamic(size) ? stream << '?' : stream << size;
      },
      "x");
}

/// Returns what a grid needs so that its groups are known (the whole job, or
/// groups that can be listed), or an empty text if nothing is missing.
static std::string judgeGrid(const GridReduction &reduction) {
  ArrayRef<int64_t> shape = reduction.getGridShape();
  if (llvm::is_contained(shape, 0))
    return "a grid with processes";
  if (ShapedType::isDynamicShape(shape))
    return reduction.axes.size() == shape.size()
               ? ""
               : "a static shape for a reduction over some of the grid's axes";
  return countRanks(shape)
             ? ""
             : "a grid of at most " + std::to_string(kMaxRanks) + " processes";
}

std::string mlir::ddp::findObstacle(const GridReduction &reduction) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  Type input = reduction.getInput().getType();
  Type result = reduction.getResult().getType();
  auto tensor = dyn_cast<RankedTensorType>(input);
  if (reduction.kind != shard::ReductionKind::Sum &&
      reduction.kind != shard::ReductionKind::Average)
    stream << "expected the reduction sum or average, but got "
           << shard::stringifyReductionKind(reduction.kind);
  else if (!tensor)
    stream << "expected a tensor, but got '" << input
           << "'; run 'ddp-import-shard' before bufferization";
  else if (!tensor.hasStaticShape() || !isDtype(tensor.getElementType()))
    stream << "expected a statically shaped tensor of " << getDtypeNames()
           << ", but got '" << input << "'";
  else if (input != result)
    stream << "expected a result of the operand's type '" << input
           << "', but got '" << result
           << "'; convert the operand before it is reduced";
  else if (std::string expected = judgeGrid(reduction); !expected.empty()) {
    stream << "expected " << expected << ", but ";
    print(stream, reduction.grid);
  }
  return text;
}
