// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A mean in ddp divides before it adds, so folding a division before the sum
// gives the same bits. Folding one after it does if the size is a power of two
// and no quotient underflows; otherwise it rounds differently, but as often. We
// fold none after a conversion to a wider type: it asks for a better quotient.

#include "../Utils/SizeConstants.h"
#include "ImportSteps.h"
#include "StableHLO.h"

using namespace mlir;
using namespace mlir::ddp;

/// Returns the scaling that `op` does if it divides or multiplies by a
/// constant, preferring one by `size` if both operands are constants.
static std::optional<Scaling> getScaling(Operation *op, int64_t size) {
  bool isProduct = isNamed(op, "stablehlo.multiply");
  if ((!isProduct && !isNamed(op, "stablehlo.divide")) ||
      op->getNumOperands() != 2 || op->getNumResults() != 1)
    return std::nullopt;
  std::optional<Scaling> found;
  // A dividend is not a scaling, but a factor may be either operand.
  for (unsigned place : {1, 0}) {
    Value scaled = op->getOperand(1 - place);
    std::optional<APFloat> number = getSplat(op->getOperand(place));
    if ((place == 1 || isProduct) && number &&
        scaled.getType() == op->getOperand(place).getType() &&
        scaled.getType() == op->getResult(0).getType()) {
      Scaling scaling{op, scaled, *number, isProduct};
      if (scaling.isBy(size))
        return scaling;
      if (!found)
        found = scaling;
    }
  }
  return found;
}

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

/// Collects the divisions and multiplications by constants that the uses of
/// `value` lead to. Returns false if a use leads elsewhere.
static bool findScalings(Value value, int64_t size,
                         llvm::MapVector<Operation *, Scaling> &scalings,
                         unsigned depth = 0) {
  // JAX puts fewer operations between a sum and its division.
  constexpr unsigned maxDepth = 8;
  if (depth == maxDepth)
    return false;
  for (Operation *user : value.getUsers()) {
    std::optional<Scaling> scaling = getScaling(user, size);
    if (scaling && scaling->scaled == value) {
      scalings.try_emplace(user, *scaling);
      continue;
    }
    bool isPassed = isRearrangement(user) ||
                    (isFloatConversion(user) &&
                     (!isExactConversion(user) || llvm::isPowerOf2_64(size)));
    if (!isPassed ||
        !findScalings(user->getResult(0), size, scalings, depth + 1))
      return false;
  }
  return !value.use_empty();
}

static bool foldAfter(AllReduceOp reduction, int64_t size,
                      std::optional<Scaling> &other) {
  // Gradients in f16 are often close to underflow: do not divide first.
  if (getElementTypeOrSelf(reduction.getInput()).isF16())
    return false;
  llvm::MapVector<Operation *, Scaling> scalings;
  if (!findScalings(reduction.getResult(), size, scalings))
    return false;
  for (auto &[op, scaling] : scalings)
    if (!scaling.isBy(size))
      other = scaling;
  if (other)
    return false;
  for (auto &[op, scaling] : scalings) {
    SmallVector<Value> operands(op->getOperands());
    op->getResult(0).replaceAllUsesWith(scaling.scaled);
    op->erase();
    for (Value operand : operands)
      eraseIfUnused(operand);
  }
  return true;
}

static bool foldBefore(AllReduceOp reduction, int64_t size,
                       std::optional<Scaling> &other) {
  OpOperand *use = &reduction.getInputMutable();
  while (Operation *op = use->get().getDefiningOp()) {
    Value value = use->get();
    if (std::optional<Scaling> scaling = getScaling(op, size)) {
      if (!scaling->isBy(size)) {
        other = scaling;
        return false;
      }
      use->set(scaling->scaled);
      eraseIfUnused(value);
      return true;
    }
    // A value that fits into a narrower type after the division may overflow
    // before it.
    if (!value.hasOneUse() || (!isRearrangement(op) && !isExactConversion(op)))
      return false;
    use = &op->getOpOperand(0);
  }
  return false;
}

bool mlir::ddp::foldStableHLOMean(AllReduceOp reduction, int64_t size) {
  std::optional<Scaling> before, after;
  if (foldAfter(reduction, size, after) ||
      foldBefore(reduction, size, before)) {
    reduction.setReduction(Reduction::Mean);
    return true;
  }
  remarkOtherSize(reduction, {after, before}, size, "ddp-import-stablehlo");
  return false;
}
