// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads offsets that are a multiple of a loop's variable.

#include "LoopSlices.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "llvm/Support/CheckedArithmetic.h"

using namespace mlir;
using namespace mlir::ddp;

/// The factor of an offset that is a constant times `variable`.
static std::optional<int64_t> getFactor(OpFoldResult offset, Value variable) {
  auto value = dyn_cast_if_present<Value>(offset);
  if (value == variable)
    return 1;
  if (!value)
    return std::nullopt;
  if (auto product = value.getDefiningOp<arith::MulIOp>())
    for (auto [factor, other] : {std::pair(product.getLhs(), product.getRhs()),
                                 std::pair(product.getRhs(), product.getLhs())})
      if (other == variable)
        return getConstantIntValue(factor);
  auto apply = value.getDefiningOp<affine::AffineApplyOp>();
  if (!apply || apply.getMapOperands() != ValueRange(variable))
    return std::nullopt;
  auto product =
      dyn_cast<AffineBinaryOpExpr>(apply.getAffineMap().getResult(0));
  if (!product || product.getKind() != AffineExprKind::Mul ||
      !isa<AffineDimExpr, AffineSymbolExpr>(product.getLHS()))
    return std::nullopt;
  if (auto factor = dyn_cast<AffineConstantExpr>(product.getRHS()))
    return factor.getValue();
  return std::nullopt;
}

bool mlir::ddp::coversAll(OffsetSizeAndStrideOpInterface slice, ShapedType type,
                          ArrayRef<LoopRange> ranges) {
  if (!type.hasStaticShape() || !slice.hasUnitStride())
    return false;
  SmallPtrSet<const LoopRange *, 4> used;
  auto isCovered = [&](OpFoldResult offset, OpFoldResult size, int64_t extent) {
    if (isConstantIntValue(offset, 0) && isConstantIntValue(size, extent))
      return true;
    for (const LoopRange &range : ranges) {
      std::optional<int64_t> factor = getFactor(offset, range.variable);
      std::optional<int64_t> end = getConstantIntValue(range.end);
      std::optional<int64_t> step = getConstantIntValue(range.step);
      if (!factor || *factor <= 0 || !end || !step || *step <= 0 ||
          !isConstantIntValue(range.begin, 0))
        continue;
      // Two dimensions that one variable walks along give a diagonal.
      std::optional<int64_t> part = llvm::checkedMul(*factor, *step);
      return part && llvm::checkedMul(*factor, *end) == extent &&
             *end % *step == 0 && isConstantIntValue(size, *part) &&
             used.insert(&range).second;
    }
    return false;
  };
  for (auto [offset, size, extent] : llvm::zip_equal(
           slice.getMixedOffsets(), slice.getMixedSizes(), type.getShape()))
    if (!isCovered(offset, size, extent))
      return false;
  // The others do nothing but repeat that, at least once.
  return llvm::all_of(ranges, [&](const LoopRange &range) {
    std::optional<int64_t> begin = getConstantIntValue(range.begin);
    std::optional<int64_t> end = getConstantIntValue(range.end);
    return used.contains(&range) || (begin && end && *begin < *end);
  });
}

SmallVector<LoopRange> mlir::ddp::getRanges(LoopLikeOpInterface loop) {
  SmallVector<LoopRange> ranges;
  auto variables = loop.getLoopInductionVars();
  auto begins = loop.getLoopLowerBounds(), ends = loop.getLoopUpperBounds(),
       steps = loop.getLoopSteps();
  if (variables && begins && ends && steps)
    for (auto [variable, begin, end, step] :
         llvm::zip_equal(*variables, *begins, *ends, *steps))
      ranges.push_back({variable, begin, end, step});
  return ranges;
}
