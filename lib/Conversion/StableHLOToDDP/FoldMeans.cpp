// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds means in StableHLO. Unless the size is a power of two, we fold no
// division after a conversion to a wider type: it asks for a better quotient.

#include "../Utils/Means.h"
#include "ImportSteps.h"
#include "StableHLO.h"

using namespace mlir;
using namespace mlir::ddp;

/// Returns true if the result's type represents all numbers of the operand's.
static bool isExactConversion(Operation *op) {
  if (!isFloatConversion(op))
    return false;
  auto getSemantics = [](Value value) -> const llvm::fltSemantics & {
    Type type = getElementTypeOrSelf(value.getType());
    return cast<FloatType>(type).getFloatSemantics();
  };
  return APFloat::isRepresentableBy(getSemantics(op->getOperand(0)),
                                    getSemantics(op->getResult(0)));
}

namespace {
struct StableHLOMeans : MeanDialect {
  using MeanDialect::MeanDialect;

  std::optional<Scaling> getScaling(Operation *op) const override {
    bool isProduct = isNamed(op, "stablehlo.multiply");
    if ((!isProduct && !isNamed(op, "stablehlo.divide")) ||
        op->getNumOperands() != 2 || op->getNumResults() != 1)
      return std::nullopt;
    return getScalingByConstant(op, isProduct, getSplat);
  }

  bool isPassedAfterSum(Operation *op) const override {
    return isRearrangement(op) ||
           (isFloatConversion(op) &&
            (!isExactConversion(op) || llvm::isPowerOf2_64(size)));
  }

  /// A value that fits into a narrower type after the division may overflow
  /// before it.
  bool isPassedBeforeSum(Operation *op) const override {
    return isRearrangement(op) || isExactConversion(op);
  }

  bool isComputation(Operation *op) const override {
    return ddp::isComputation(op);
  }
};
} // namespace

bool mlir::ddp::foldStableHLOMean(AllReduceOp reduction, int64_t size) {
  return foldMean(reduction, StableHLOMeans(size), "ddp-import-stablehlo");
}
