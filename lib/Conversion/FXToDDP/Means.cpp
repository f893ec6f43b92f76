//===- Means.cpp -----------------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See Means.h. A division is what torch-mlir makes of PyTorch's: a
// linalg.generic that computes each element from the one at the same place.
//
//===----------------------------------------------------------------------===//

#include "Means.h"

#include "../Utils/SizeConstants.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::ddp;

/// The number that `value` always is, through conversions, as PyTorch's numbers
/// are of 64 bits.
static std::optional<APFloat> getNumber(Value value) {
  auto type = dyn_cast<FloatType>(value.getType());
  if (!type)
    return std::nullopt;
  const llvm::fltSemantics &semantics = type.getFloatSemantics();
  APFloat number(semantics);
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

/// The tensor of whose elements `op` makes quotients by `size`, or null.
static Value getDividend(Operation *op, int64_t size) {
  auto generic = dyn_cast_or_null<linalg::GenericOp>(op);
  if (!generic || !generic.hasPureTensorSemantics() ||
      generic.getNumDpsInits() != 1 ||
      generic.getNumParallelLoops() != generic.getNumLoops())
    return {};
  Operation *yield = generic.getBody()->getTerminator();
  Operation *quotient = yield->getOperand(0).getDefiningOp();
  BlockArgument element;
  if (auto division = dyn_cast_or_null<arith::DivFOp>(quotient)) {
    if (isSize(division.getRhs(), size, /*inverse=*/false))
      element = dyn_cast<BlockArgument>(division.getLhs());
  } else if (auto product = dyn_cast_or_null<arith::MulFOp>(quotient)) {
    // The canonical place of a constant is the second one.
    if (isSize(product.getRhs(), size, /*inverse=*/true))
      element = dyn_cast<BlockArgument>(product.getLhs());
  }
  if (!element || element.getOwner() != generic.getBody() ||
      element.getArgNumber() >= generic.getNumDpsInputs())
    return {};
  OpOperand *dividend = generic.getDpsInputOperand(element.getArgNumber());
  if (!generic.getMatchingIndexingMap(dividend).isIdentity() ||
      !generic.getMatchingIndexingMap(generic.getDpsInitOperand(0))
           .isIdentity() ||
      dividend->get().getType() != generic->getResult(0).getType())
    return {};
  return dividend->get();
}

static bool foldAfter(AllReduceOp reduction, int64_t size) {
  Value sum = reduction.getResult();
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

bool mlir::ddp::foldLinalgMean(AllReduceOp reduction, int64_t size) {
  if (!foldAfter(reduction, size) && !foldBefore(reduction, size))
    return false;
  reduction.setReduction(Reduction::Mean);
  return true;
}
