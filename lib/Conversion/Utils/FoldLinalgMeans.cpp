// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See FoldLinalgMeans.h. A division is an elementwise linalg operation, or an
// arith operation on tensors.

#include "FoldLinalgMeans.h"

#include "SizeConstants.h"

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

/// Returns the scaling that `op` does if it divides or multiplies by a
/// constant, preferring one by `size` if both operands are constants.
static std::optional<Scaling> getScalingOfArith(Operation *op, int64_t size) {
  bool isProduct = isa_and_nonnull<arith::MulFOp>(op);
  if (!isProduct && !isa_and_nonnull<arith::DivFOp>(op))
    return std::nullopt;
  std::optional<Scaling> found;
  // A dividend is not a scaling, but a factor may be either operand.
  for (unsigned place : {1, 0}) {
    std::optional<APFloat> number = getNumber(op->getOperand(place));
    if (!number || (place == 0 && !isProduct))
      continue;
    Scaling scaling{op, op->getOperand(1 - place), *number, isProduct};
    if (scaling.isBy(size))
      return scaling;
    if (!found)
      found = scaling;
  }
  return found;
}

/// Returns the scaling that `op` does on tensors.
static std::optional<Scaling> getScaling(Operation *op, int64_t size) {
  auto linalgOp = dyn_cast_or_null<linalg::LinalgOp>(op);
  if (!linalgOp) {
    std::optional<Scaling> scaling = getScalingOfArith(op, size);
    return scaling && isa<RankedTensorType>(scaling->scaled.getType())
               ? scaling
               : std::nullopt;
  }
  if (!linalgOp.hasPureTensorSemantics() || linalgOp.getNumDpsInits() != 1 ||
      linalgOp.getNumParallelLoops() != linalgOp.getNumLoops())
    return std::nullopt;
  Block *body = linalgOp.getBlock();
  std::optional<Scaling> scaling = getScalingOfArith(
      body->getTerminator()->getOperand(0).getDefiningOp(), size);
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

static bool foldAfter(AllReduceOp reduction, int64_t size,
                      std::optional<Scaling> &other) {
  Value sum = reduction.getResult();
  // Gradients in f16 are often close to underflow: do not divide first.
  if (getElementTypeOrSelf(sum).isF16() || sum.use_empty())
    return false;
  SetVector<Operation *> divisions;
  bool isMean = true;
  for (Operation *user : sum.getUsers()) {
    std::optional<Scaling> scaling = getScaling(user, size);
    if (!scaling || scaling->scaled != sum)
      return false;
    if (!scaling->isBy(size)) {
      isMean = false;
      other = scaling;
    }
    divisions.insert(user);
  }
  if (!isMean)
    return false;
  for (Operation *division : divisions) {
    division->getResult(0).replaceAllUsesWith(sum);
    division->erase();
  }
  return true;
}

static bool foldBefore(AllReduceOp reduction, int64_t size,
                       std::optional<Scaling> &other) {
  Operation *division = reduction.getInput().getDefiningOp();
  std::optional<Scaling> scaling = getScaling(division, size);
  if (!scaling)
    return false;
  if (!scaling->isBy(size)) {
    other = scaling;
    return false;
  }
  reduction.getInputMutable().set(scaling->scaled);
  if (division->use_empty())
    division->erase();
  return true;
}

void mlir::ddp::foldLinalgMean(AllReduceOp reduction, int64_t size,
                               StringRef pass) {
  if (reduction.getReduction() != Reduction::Sum)
    return;
  std::optional<Scaling> before, after;
  if (foldAfter(reduction, size, after) ||
      foldBefore(reduction, size, before)) {
    reduction.setReduction(Reduction::Mean);
    return;
  }
  remarkOtherSize(reduction, {after, before}, size, pass);
}
