//===- Means.cpp -----------------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See Means.h. A mean of ddp divides before it adds. So a division before the
// sum gives the same bits; one behind it does where the size is a power of two
// and no quotient is too small for the type, and otherwise rounds at another
// place.
//
//===----------------------------------------------------------------------===//

#include "Means.h"

#include "../Utils/SizeConstants.h"
#include "StableHLO.h"

using namespace mlir;
using namespace mlir::ddp;

/// Whether `value` is `size`, or with `inverse` what a program has for 1/size.
static bool isSize(Value value, int64_t size, bool inverse) {
  std::optional<APFloat> number = getSplat(value);
  return number && isSizeConstant(*number, size, inverse);
}

/// The value that `op` divides by `size`, or null.
static Value getDividend(Operation *op, int64_t size) {
  bool isDivision = isNamed(op, "stablehlo.divide");
  if ((!isDivision && !isNamed(op, "stablehlo.multiply")) ||
      op->getNumOperands() != 2 || op->getNumResults() != 1)
    return {};
  Value dividend;
  if (isSize(op->getOperand(1), size, /*inverse=*/!isDivision))
    dividend = op->getOperand(0);
  else if (!isDivision && isSize(op->getOperand(0), size, /*inverse=*/true))
    dividend = op->getOperand(1);
  return dividend && dividend.getType() == op->getResult(0).getType() ? dividend
                                                                      : Value();
}

/// Collects the divisions that all uses of `value` lead to. Returns false if
/// one leads elsewhere.
static bool findDivisions(Value value, int64_t size,
                          SetVector<Operation *> &divisions,
                          unsigned depth = 0) {
  // More than JAX puts between a sum and its division.
  constexpr unsigned maxDepth = 8;
  if (depth == maxDepth)
    return false;
  for (Operation *user : value.getUsers()) {
    if (getDividend(user, size) == value) {
      divisions.insert(user);
      continue;
    }
    if ((!isRearrangement(user) && !isFloatConversion(user)) ||
        !findDivisions(user->getResult(0), size, divisions, depth + 1))
      return false;
  }
  return !value.use_empty();
}

static bool foldAfter(AllReduceOp reduction, int64_t size) {
  // Gradients are often near the least numbers of an f16, and would be lost.
  if (getElementTypeOrSelf(reduction.getInput()).isF16())
    return false;
  SetVector<Operation *> divisions;
  if (!findDivisions(reduction.getResult(), size, divisions))
    return false;
  for (Operation *division : divisions) {
    SmallVector<Value> operands(division->getOperands());
    division->getResult(0).replaceAllUsesWith(getDividend(division, size));
    division->erase();
    for (Value operand : operands)
      eraseIfUnused(operand);
  }
  return true;
}

/// Whether each number of the operand's type is one of the result's.
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

static bool foldBefore(AllReduceOp reduction, int64_t size) {
  OpOperand *use = &reduction.getInputMutable();
  while (Operation *op = use->get().getDefiningOp()) {
    Value value = use->get();
    if (Value dividend = getDividend(op, size)) {
      use->set(dividend);
      eraseIfUnused(value);
      return true;
    }
    // A value that was small enough for a narrower type once it was divided may
    // not be so before.
    if (!value.hasOneUse() || (!isRearrangement(op) && !isExactConversion(op)))
      return false;
    use = &op->getOpOperand(0);
  }
  return false;
}

bool mlir::ddp::foldStableHLOMean(AllReduceOp reduction, int64_t size) {
  if (!foldAfter(reduction, size) && !foldBefore(reduction, size))
    return false;
  reduction.setReduction(Reduction::Mean);
  return true;
}
