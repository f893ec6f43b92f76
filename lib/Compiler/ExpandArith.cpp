// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Upstream's arith-expand with two differences. It does not expand maximumf and
// minimumf to a comparison and a selection, which treat -0 and +0 as equal;
// LLVM's intrinsics order -0 first. And it expands casts from f64 to bf16, for
// which LLVM would call a function that older compilers' libraries lack. First
// it makes each operation on narrow floats round its result.

#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Transforms/WalkPatternRewriteDriver.h"

#define GEN_PASS_DEF_DDPEXPANDARITHPASS
#include "ddphook/Compiler/Passes.h"

using namespace mlir;

static Type withElementType(Type type, Type element) {
  if (auto shaped = dyn_cast<ShapedType>(type))
    return shaped.clone(element);
  return element;
}

static Value createConstant(OpBuilder &builder, Location loc, Type type,
                            int64_t value) {
  TypedAttr attribute =
      builder.getIntegerAttr(getElementTypeOrSelf(type), value);
  if (auto shaped = dyn_cast<ShapedType>(type))
    attribute = DenseElementsAttr::get(shaped, attribute);
  return arith::ConstantOp::create(builder, loc, type, attribute);
}

namespace {
/// Converts f64 to bf16 through f32 with a single rounding. The conversion to
/// f32 rounds inexact values to odd: to the neighbor whose last bit is 1. That
/// bit records the loss, so that the second rounding, to nearest, has the
/// result of a single one (S. Boldo and G. Melquiond, "Emulation of FMA and
/// correctly rounded sums: proved algorithms using rounding to odd", 2008).
struct ExpandWideTruncF : public OpRewritePattern<arith::TruncFOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(arith::TruncFOp op,
                                PatternRewriter &rewriter) const override {
    Value wide = op.getIn();
    if (!getElementTypeOrSelf(wide).isF64() ||
        !getElementTypeOrSelf(op.getType()).isBF16())
      return failure();
    Location loc = op.getLoc();
    Type single = withElementType(op.getType(), rewriter.getF32Type());
    Type integer = withElementType(op.getType(), rewriter.getI32Type());
    Value nearest = arith::TruncFOp::create(rewriter, loc, single, wide);
    Value back = arith::ExtFOp::create(rewriter, loc, wide.getType(), nearest);
    // An ordered comparison leaves NaN unchanged.
    Value isInexact = arith::CmpFOp::create(
        rewriter, loc, arith::CmpFPredicate::ONE, back, wide);
    Value isTooLarge =
        arith::CmpFOp::create(rewriter, loc, arith::CmpFPredicate::OGT,
                              math::AbsFOp::create(rewriter, loc, back),
                              math::AbsFOp::create(rewriter, loc, wide));
    // For either sign, decrementing the bits steps towards zero.
    Value bits = arith::BitcastOp::create(rewriter, loc, integer, nearest);
    Value towardsZero = arith::SubIOp::create(
        rewriter, loc, bits,
        arith::ExtUIOp::create(rewriter, loc, integer, isTooLarge));
    Value odd = arith::OrIOp::create(rewriter, loc, towardsZero,
                                     createConstant(rewriter, loc, integer, 1));
    Value chosen = arith::SelectOp::create(rewriter, loc, isInexact, odd, bits);
    rewriter.replaceOpWithNewOp<arith::TruncFOp>(
        op, op.getType(),
        arith::BitcastOp::create(rewriter, loc, single, chosen));
    return success();
  }
};

template <typename CastOp>
void clearContract(CastOp op) {
  if (std::optional<arith::FastMathFlags> flags = op.getFastmath())
    op.setFastmath(bitEnumClear(*flags, arith::FastMathFlags::contract));
}

struct ExpandArithPass
    : public ddp::impl::DDPExpandArithPassBase<ExpandArithPass> {
  void runOnOperation() override {
    getOperation()->walk([](Operation *op) {
      if (auto extend = dyn_cast<arith::ExtFOp>(op))
        clearContract(extend);
      else if (auto truncate = dyn_cast<arith::TruncFOp>(op))
        clearContract(truncate);
    });

    // This leaves a cast from f32, which the patterns below expand.
    RewritePatternSet wide(&getContext());
    wide.add<ExpandWideTruncF>(&getContext());
    walkAndApplyPatterns(getOperation(), std::move(wide));

    RewritePatternSet patterns(&getContext());
    arith::populateCeilFloorDivExpandOpsPatterns(patterns);
    arith::populateExpandBFloat16Patterns(patterns);
    walkAndApplyPatterns(getOperation(), std::move(patterns));
  }
};
} // namespace
