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

/// What `op` does if it divides a number by a constant, or multiplies it by
/// one; by that of `size` where it has the choice.
static std::optional<Scaling> getScalingOfArith(Operation *op, int64_t size) {
  bool isProduct = isa_and_nonnull<arith::MulFOp>(op);
  if (!isProduct && !isa_and_nonnull<arith::DivFOp>(op))
    return std::nullopt;
  std::optional<Scaling> found;
  // A number that is divided makes another quotient.
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

/// The same of `op` on tensors.
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
  // Gradients are often near the least numbers of an f16, and would be lost.
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
