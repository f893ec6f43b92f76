// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// NVIDIA's math functions are in a library of its toolkit, which the compiling
// machine may lack, and the hardware's fast instructions are not accurate
// enough. So this pass expands functions to polynomials in the kernel. It
// rejects functions without a polynomial, for which LLVM would end the process.

#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "llvm/ADT/SmallPtrSet.h"

#define GEN_PASS_DEF_DDPEXPANDDEVICEMATHPASS
#include "ddphook/CodeGen/Passes.h"

using namespace mlir;

namespace {
/// Returns true if the device computes this exactly or correctly rounded.
bool isInstruction(Operation *op) {
  return isa<math::AbsFOp, math::AbsIOp, math::CeilOp, math::CopySignOp,
             math::CountLeadingZerosOp, math::CountTrailingZerosOp,
             math::CtPopOp, math::FloorOp, math::FmaOp, math::IsFiniteOp,
             math::IsInfOp, math::IsNaNOp, math::IsNormalOp, math::RoundEvenOp,
             math::SqrtOp, math::TruncOp>(op);
}

struct ExpandDeviceMathPass
    : public ddp::impl::DDPExpandDeviceMathPassBase<ExpandDeviceMathPass> {
  void runOnOperation() override {
    // First expand functions that are composed of others.
    RewritePatternSet patterns(&getContext());
    math::populateExpansionPatterns(
        patterns, {"sinh", "cosh", "tan", "asinh", "acosh", "atanh", "exp2",
                   "powf", "fpowi", "round", "rsqrt", "clampf"});
    auto isApproximated = [](StringRef name) {
      return llvm::is_contained(
          {"math.exp", "math.log", "math.log2", "math.log1p", "math.expm1",
           "math.tanh", "math.erf", "math.erfc", "math.sin", "math.cos",
           "math.atan", "math.atan2", "math.cbrt", "math.asin", "math.acos"},
          name);
    };
    populateMathF32ExpansionPatterns(patterns, isApproximated);
    populateMathPolynomialApproximationPatterns(patterns, isApproximated);
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      return signalPassFailure();

    llvm::SmallPtrSet<const void *, 8> reported;
    getOperation().walk([&](Operation *op) {
      // LLVM lowers remf to x - trunc(x / y) * y, which is not the remainder.
      bool isUnknown = isa<arith::RemFOp>(op) ||
                       (isa_and_present<math::MathDialect>(op->getDialect()) &&
                        !isInstruction(op));
      if (!isUnknown ||
          !reported.insert(op->getName().getAsOpaquePointer()).second)
        return;
      op->emitError() << "'" << op->getName() << "' of "
                      << op->getResult(0).getType()
                      << " has no device implementation";
      signalPassFailure();
    });
  }
};
} // namespace
