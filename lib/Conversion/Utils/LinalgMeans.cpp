// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds means in linalg. A division is an elementwise linalg operation, or an
// arith operation on tensors.

#include "Means.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::ddp;

/// Returns the constant that `value`, or each of its elements, is. Looks
/// through conversions, because PyTorch's constants have 64 bits.
static std::optional<APFloat> getNumber(Value value) {
  // A block argument is an element of the linalg operation's operand.
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
  // Also matches a splat.
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

namespace {
struct LinalgMeans : MeanDialect {
  using MeanDialect::MeanDialect;
  std::optional<Scaling> getScaling(Operation *op) const override;

private:
  std::optional<Scaling> getScalingOfArith(Operation *op) const;
};
} // namespace

std::optional<Scaling> LinalgMeans::getScalingOfArith(Operation *op) const {
  bool isProduct = isa_and_nonnull<arith::MulFOp>(op);
  if (!isProduct && !isa_and_nonnull<arith::DivFOp>(op))
    return std::nullopt;
  return getScalingByConstant(op, isProduct, getNumber);
}

std::optional<Scaling> LinalgMeans::getScaling(Operation *op) const {
  auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
  if (!linalgOp) {
    std::optional<Scaling> scaling = getScalingOfArith(op);
    return scaling && isa<RankedTensorType>(scaling->scaled.getType())
               ? scaling
               : std::nullopt;
  }
  if (!linalgOp.hasPureTensorSemantics() || linalgOp.getNumDpsInits() != 1 ||
      linalgOp.getNumParallelLoops() != linalgOp.getNumLoops())
    return std::nullopt;
  Block *body = linalgOp.getBlock();
  std::optional<Scaling> scaling =
      getScalingOfArith(body->getTerminator()->getOperand(0).getDefiningOp());
  auto element =
      dyn_cast_or_null<BlockArgument>(scaling ? scaling->scaled : Value());
  if (!element || element.getOwner() != body ||
      element.getArgNumber() >= linalgOp.getNumDpsInputs())
    return std::nullopt;
  OpOperand *operand = linalgOp.getDpsInputOperand(element.getArgNumber());
  if (!linalgOp.getMatchingIndexingMap(operand).isIdentity() ||
      !linalgOp.getMatchingIndexingMap(linalgOp.getDpsInitOperand(0))
           .isIdentity() ||
      operand->get().getType() != op->getResult(0).getType())
    return std::nullopt;
  scaling->op = op;
  scaling->scaled = operand->get();
  return scaling;
}

void mlir::ddp::foldLinalgMean(AllReduceOp reduction, int64_t size,
                               StringRef pass) {
  if (reduction.getReduction() == Reduction::Sum)
    foldMean(reduction, LinalgMeans(size), pass);
}
