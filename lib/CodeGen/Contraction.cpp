// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Contraction.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
/// Returns true if `block` is yield(out + lhs * rhs), in any operand order.
bool isMultiplyAdd(Block &block) {
  if (block.getNumArguments() != 3 || block.getOperations().size() != 3)
    return false;
  auto mul = dyn_cast<arith::MulFOp>(block.front());
  auto add = dyn_cast<arith::AddFOp>(*std::next(block.begin()));
  if (!mul || !add)
    return false;
  Value lhs = block.getArgument(0), rhs = block.getArgument(1),
        out = block.getArgument(2);
  auto pair = [](Operation *op, Value a, Value b) {
    return (op->getOperand(0) == a && op->getOperand(1) == b) ||
           (op->getOperand(0) == b && op->getOperand(1) == a);
  };
  return pair(mul, lhs, rhs) && pair(add, out, mul) &&
         block.getTerminator()->getOperand(0) == add.getResult();
}

bool dependsOn(AffineMap map, unsigned loop) {
  return map.isFunctionOfDim(loop);
}

/// Returns true if iterations of `loop` access consecutive elements.
bool isContiguousAlong(const ContractionOperand &operand, unsigned loop) {
  auto memref = cast<MemRefType>(operand.memref.getType());
  SmallVector<int64_t> strides;
  int64_t offset;
  if (failed(memref.getStridesAndOffset(strides, offset)))
    return false;
  unsigned last = memref.getRank() - 1;
  for (auto [position, expr] : llvm::enumerate(operand.map.getResults())) {
    if (position != last && expr.isFunctionOfDim(loop))
      return false;
    if (position != last)
      continue;
    AffineExpr rest = expr - getAffineDimExpr(loop, expr.getContext());
    if (rest.isFunctionOfDim(loop) || strides[last] != 1)
      return false;
  }
  return true;
}

} // namespace

std::optional<Contraction> mlir::ddp::matchContraction(linalg::LinalgOp op) {
  if (!op.hasPureBufferSemantics() || op.getNumDpsInputs() != 2 ||
      op.getNumDpsInits() != 1 || op->getNumRegions() != 1 ||
      !isMultiplyAdd(*op.getBlock()))
    return std::nullopt;
  Contraction c;
  c.op = op;
  c.extents = op.getStaticLoopRanges();
  // A contraction without iterations cannot be tiled.
  if (llvm::any_of(c.extents, [](int64_t extent) {
        return ShapedType::isDynamic(extent) || extent == 0;
      }))
    return std::nullopt;

  SmallVector<ContractionOperand> operands;
  for (OpOperand &operand : op->getOpOperands()) {
    auto memref = dyn_cast<MemRefType>(operand.get().getType());
    AffineMap map = op.getMatchingIndexingMap(&operand);
    if (!memref || map.getNumSymbols() != 0)
      return std::nullopt;
    operands.push_back({operand.get(), map});
  }
  c.lhs = operands[0];
  c.rhs = operands[1];
  c.out = operands[2];
  c.elementType = dyn_cast<FloatType>(
      cast<MemRefType>(c.out.memref.getType()).getElementType());
  if (!c.elementType || (!c.elementType.isF32() && !c.elementType.isF64()))
    return std::nullopt;

  if (c.out.map.getNumResults() == 0 || !c.out.map.isProjectedPermutation())
    return std::nullopt;
  c.columnLoop = c.out.map.getDimPosition(c.out.map.getNumResults() - 1);
  if (dependsOn(c.lhs.map, c.columnLoop))
    std::swap(c.lhs, c.rhs);
  if (dependsOn(c.lhs.map, c.columnLoop) ||
      !dependsOn(c.rhs.map, c.columnLoop) ||
      !isContiguousAlong(c.out, c.columnLoop))
    return std::nullopt;
  c.rhsIsContiguous = isContiguousAlong(c.rhs, c.columnLoop);

  for (auto [loop, iterator] : llvm::enumerate(op.getIteratorTypesArray())) {
    if (iterator != utils::IteratorType::parallel) {
      if (dependsOn(c.out.map, loop))
        return std::nullopt;
      c.reductionLoops.push_back(loop);
      continue;
    }
    if (!dependsOn(c.out.map, loop))
      return std::nullopt;
    if (loop != c.columnLoop)
      c.outerLoops.push_back(loop);
  }
  if (c.reductionLoops.empty())
    return std::nullopt;
  // The rows of a tile reuse the right operand's vectors.
  for (unsigned loop : c.outerLoops)
    if (!dependsOn(c.rhs.map, loop) &&
        (!c.rowLoop || c.extents[loop] > c.extents[*c.rowLoop]))
      c.rowLoop = loop;
  if (c.rowLoop)
    llvm::erase(c.outerLoops, *c.rowLoop);
  return c;
}
