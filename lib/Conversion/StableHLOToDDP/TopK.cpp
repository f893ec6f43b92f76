// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-convert-chlo-top-k: finds the largest numbers of each row with loops.
// StableHLO's own lowering produces a sort, which cannot be converted to
// linalg. Mixture-of-experts layers use top-k.

#include "StableHLO.h"

#include "mlir/IR/ImplicitLocOpBuilder.h"

#define GEN_PASS_DEF_DDPCONVERTCHLOTOPKPASS
#include "ddphook/Conversion/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

/// Returns an integer that orders like `number` in signed comparisons.
/// Floating-point numbers use their total order, in which NaN is the largest.
static Value makeKey(ImplicitLocOpBuilder &builder, Value number) {
  auto type = dyn_cast<FloatType>(number.getType());
  if (!type)
    return number;
  unsigned width = type.getWidth();
  Type integer = builder.getIntegerType(width);
  Value bits = arith::BitcastOp::create(builder, integer, number);
  Value shift = arith::ConstantIntOp::create(builder, integer, width - 1);
  Value largest = arith::ConstantOp::create(
      builder,
      builder.getIntegerAttr(integer, APInt::getSignedMaxValue(width)));
  // Negative numbers are ordered against their bits, so flip them.
  Value sign = arith::ShRSIOp::create(builder, bits, shift);
  Value flips = arith::AndIOp::create(builder, sign, largest);
  return arith::XOrIOp::create(builder, bits, flips);
}

/// Returns the index of the largest number of a row after the one at `last`, in
/// descending order and then from left to right. For `number` 0, `last` is
/// ignored.
static Value findNext(ImplicitLocOpBuilder &builder, Value row,
                      SmallVector<Value> place, int64_t size, Value number,
                      Value last) {
  using arith::CmpIPredicate;
  auto constant = [&](int64_t value) -> Value {
    return arith::ConstantIndexOp::create(builder, value);
  };
  auto readKey = [&](Value column) {
    place.back() = column;
    Value element = tensor::ExtractOp::create(builder, row, place);
    return makeKey(builder, element);
  };
  auto compare = [&](CmpIPredicate predicate, Value a, Value b) -> Value {
    return arith::CmpIOp::create(builder, predicate, a, b);
  };
  auto both = [&](Value a, Value b) -> Value {
    return arith::AndIOp::create(builder, a, b);
  };
  auto either = [&](Value a, Value b) -> Value {
    return arith::OrIOp::create(builder, a, b);
  };
  Value none = constant(size);
  Value isFirst = compare(CmpIPredicate::eq, number, constant(0));
  Value limit = readKey(last);
  auto loop = scf::ForOp::create(builder, constant(0), none, constant(1), none);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(loop.getBody());
  Value column = loop.getInductionVar(), best = loop.getRegionIterArg(0);
  Value key = readKey(column);
  Value isAfter = either(compare(CmpIPredicate::slt, key, limit),
                         both(compare(CmpIPredicate::eq, key, limit),
                              compare(CmpIPredicate::ugt, column, last)));
  Value isOnlyOne = compare(CmpIPredicate::eq, best, none);
  Value safe = arith::SelectOp::create(builder, isOnlyOne, column, best);
  Value isBetter =
      either(isOnlyOne, compare(CmpIPredicate::sgt, key, readKey(safe)));
  Value takes = both(either(isFirst, isAfter), isBetter);
  Value next = arith::SelectOp::create(builder, takes, column, best);
  scf::YieldOp::create(builder, next);
  return loop.getResult(0);
}

static LogicalResult convertTopK(Operation *op) {
  auto k = op->getAttrOfType<IntegerAttr>("k");
  auto type = op->getNumOperands() == 1
                  ? dyn_cast<RankedTensorType>(op->getOperand(0).getType())
                  : RankedTensorType();
  if (!k || !type || type.getRank() == 0 || !type.hasStaticShape() ||
      k.getInt() < 0 || k.getInt() > type.getShape().back() ||
      !(isa<FloatType>(type.getElementType()) ||
        type.getElementType().isSignlessInteger()))
    return op->emitOpError()
           << "expected a statically shaped tensor of floating-"
              "point numbers or signless integers, and a 'k' no larger than "
              "its rows";
  SmallVector<int64_t> shape(type.getShape());
  shape.back() = k.getInt();
  ImplicitLocOpBuilder builder(op->getLoc(), op);
  auto ofValues = RankedTensorType::get(shape, type.getElementType());
  auto ofPlaces = RankedTensorType::get(shape, builder.getI32Type());
  if (op->getResultTypes() != TypeRange({ofValues, ofPlaces}))
    return op->emitOpError() << "expected results of the types " << ofValues
                             << " and " << ofPlaces;
  SmallVector<Value> lower, upper, steps;
  for (int64_t size : shape) {
    lower.push_back(arith::ConstantIndexOp::create(builder, 0));
    upper.push_back(arith::ConstantIndexOp::create(builder, size));
    steps.push_back(arith::ConstantIndexOp::create(builder, 1));
  }
  SmallVector<Value> results{
      tensor::EmptyOp::create(builder, shape, ofValues.getElementType()),
      tensor::EmptyOp::create(builder, shape, ofPlaces.getElementType()),
      lower.back()};
  // The third result is the index that was found last.
  scf::LoopNest nest = scf::buildLoopNest(
      builder, builder.getLoc(), lower, upper, steps, results,
      [&](OpBuilder &inner, Location loc, ValueRange places,
          ValueRange values) {
        ImplicitLocOpBuilder at(loc, inner);
        SmallVector<Value> place(places);
        Value row = op->getOperand(0);
        Value next = findNext(at, row, place, type.getShape().back(),
                              places.back(), values[2]);
        place.back() = next;
        Value element = tensor::ExtractOp::create(at, row, place);
        Value number = arith::IndexCastOp::create(at, at.getI32Type(), next);
        Value first = tensor::InsertOp::create(at, element, values[0], places);
        Value second = tensor::InsertOp::create(at, number, values[1], places);
        return scf::ValueVector{first, second, next};
      });
  return replaceByValues(op, ArrayRef(nest.results).drop_back());
}

namespace {
struct ConvertCHLOTopKPass
    : public ddp::impl::DDPConvertCHLOTopKPassBase<ConvertCHLOTopKPass> {
  void runOnOperation() override {
    WalkResult result = getOperation().walk([](Operation *op) -> WalkResult {
      return isNamed(op, "chlo.top_k") ? convertTopK(op) : success();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
