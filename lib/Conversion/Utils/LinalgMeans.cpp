//===- LinalgMeans.cpp -----------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See LinalgMeans.h. A division computes each element of a tensor from the one
// at the same place: by a linalg operation, or by one of arith on tensors.
//
//===----------------------------------------------------------------------===//

#include "LinalgMeans.h"

#include "SizeConstants.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::ddp;

/// The number that `value`, or each of its elements, always is, through
/// conversions, as PyTorch's numbers are of 64 bits.
static std::optional<APFloat> getNumber(Value value) {
  // What a linalg operation gets for an element is an element of its operand.
  if (auto element = dyn_cast<BlockArgument>(value)) {
    auto op =
        dyn_cast_or_null<linalg::LinalgOp>(element.getOwner()->getParentOp());
    if (!op || element.getArgNumber() >= op.getNumDpsInputs())
      return std::nullopt;
    value = op.getDpsInputOperand(element.getArgNumber())->get();
    if (isa<BlockArgument>(value))
      return std::nullopt;
  }
  if (auto fill = value.getDefiningOp<linalg::FillOp>())
    value = fill.getInputs()[0];
  auto type = dyn_cast<FloatType>(getElementTypeOrSelf(value));
  if (!type)
    return std::nullopt;
  const llvm::fltSemantics &semantics = type.getFloatSemantics();
  APFloat number(semantics);
  // Of a splat, too.
  if (matchPattern(value, m_ConstantFloat(&number)))
    return number;
  Operation *op = value.getDefiningOp();
  if (auto conversion = dyn_cast_or_null<arith::SIToFPOp>(op)) {
    APInt integer;
    if (!matchPattern(conversion.getIn(), m_ConstantInt(&integer)))
      return std::nullopt;
    number.convertFromAPInt(integer, /*IsSigned=*/true,
                            APFloat::rmNearestTiesToEven);
    return number;
  }
  if (!isa_and_nonnull<arith::ExtFOp, arith::TruncFOp>(op))
    return std::nullopt;
  std::optional<APFloat> wide = getNumber(op->getOperand(0));
  bool losesInfo;
  if (wide)
    wide->convert(semantics, APFloat::rmNearestTiesToEven, &losesInfo);
  return wide;
}

/// Whether `value` is `size`, or with `inverse` what a program has for 1/size.
static bool isSize(Value value, int64_t size, bool inverse) {
  std::optional<APFloat> number = getNumber(value);
  return number && isSizeConstant(*number, size, inverse);
}

/// What `op` divides by `size`, or null.
static Value getDividendOfArith(Operation *op, int64_t size) {
  if (auto division = dyn_cast_or_null<arith::DivFOp>(op))
    return isSize(division.getRhs(), size, /*inverse=*/false)
               ? division.getLhs()
               : Value();
  auto product = dyn_cast_or_null<arith::MulFOp>(op);
  if (!product)
    return {};
  if (isSize(product.getRhs(), size, /*inverse=*/true))
    return product.getLhs();
  return isSize(product.getLhs(), size, /*inverse=*/true) ? product.getRhs()
                                                          : Value();
}

/// The tensor of whose elements `op` makes quotients by `size`, or null.
static Value getDividend(Operation *op, int64_t size) {
  auto linalgOp = dyn_cast_or_null<linalg::LinalgOp>(op);
  if (!linalgOp) {
    Value dividend = getDividendOfArith(op, size);
    return dividend && isa<RankedTensorType>(dividend.getType()) ? dividend
                                                                 : Value();
  }
  if (!linalgOp.hasPureTensorSemantics() || linalgOp.getNumDpsInits() != 1 ||
      linalgOp.getNumParallelLoops() != linalgOp.getNumLoops())
    return {};
  Block *body = linalgOp.getBlock();
  auto element = dyn_cast_or_null<BlockArgument>(getDividendOfArith(
      body->getTerminator()->getOperand(0).getDefiningOp(), size));
  if (!element || element.getOwner() != body ||
      element.getArgNumber() >= linalgOp.getNumDpsInputs())
    return {};
  OpOperand *dividend = linalgOp.getDpsInputOperand(element.getArgNumber());
  if (!linalgOp.getMatchingIndexingMap(dividend).isIdentity() ||
      !linalgOp.getMatchingIndexingMap(linalgOp.getDpsInitOperand(0))
           .isIdentity() ||
      dividend->get().getType() != op->getResult(0).getType())
    return {};
  return dividend->get();
}

static bool foldAfter(AllReduceOp reduction, int64_t size) {
  Value sum = reduction.getResult();
  // Gradients are often near the least numbers of an f16, and would be lost.
  if (getElementTypeOrSelf(sum).isF16())
    return false;
  if (sum.use_empty() || !llvm::all_of(sum.getUsers(), [&](Operation *user) {
        return getDividend(user, size) == sum;
      }))
    return false;
  llvm::SetVector<Operation *> divisions(sum.user_begin(), sum.user_end());
  for (Operation *division : divisions) {
    division->getResult(0).replaceAllUsesWith(sum);
    division->erase();
  }
  return true;
}

static bool foldBefore(AllReduceOp reduction, int64_t size) {
  Operation *division = reduction.getInput().getDefiningOp();
  Value dividend = getDividend(division, size);
  if (!dividend)
    return false;
  reduction.getInputMutable().set(dividend);
  if (division->use_empty())
    division->erase();
  return true;
}

void mlir::ddp::foldLinalgMean(AllReduceOp reduction, int64_t size) {
  if (reduction.getReduction() == Reduction::Sum &&
      (foldAfter(reduction, size) || foldBefore(reduction, size)))
    reduction.setReduction(Reduction::Mean);
}
