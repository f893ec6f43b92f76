// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Uses a cost model with one number per loop: the cost of an iteration if the
// loop is innermost and LLVM vectorizes it. It only decides the order of the
// loops; upstream creates them, and TileContractions.cpp the register tiles.

#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/IR/PatternMatch.h"

#define GEN_PASS_DEF_DDPORDERLOOPSPASS
#include "ddphook/CodeGen/Passes.h"

using namespace mlir;

namespace {
// Costs of one iteration, in cycles. A strided access is a scalar load or
// store; a contiguous one shares an instruction with its neighbors. The
// additions of a floating-point reduction form a dependency chain.
constexpr double kContiguousCost = 0.125;
constexpr double kStridedCost = 1;
constexpr double kReductionCost = 4;
/// A strided walk over more elements evicts the lines that it fetched from the
/// first-level cache before it uses the rest of them.
constexpr int64_t kMaxStridedExtent = 256;

/// Returns the cost of reading or writing `operand` when `loop` is innermost;
/// unknown for layouts without strides.
std::optional<double> getAccessCost(linalg::GenericOp op, OpOperand &operand,
                                    unsigned loop, int64_t extent) {
  auto memref = dyn_cast<MemRefType>(operand.get().getType());
  if (!memref)
    return 0; // A scalar operand.
  SmallVector<int64_t> strides;
  int64_t offset;
  if (failed(memref.getStridesAndOffset(strides, offset)))
    return std::nullopt;
  AffineMap map = op.getMatchingIndexingMap(&operand);
  bool isInvariant = true, isContiguous = true;
  for (auto [position, expr] : llvm::enumerate(map.getResults())) {
    if (!expr.isFunctionOfDim(loop))
      continue;
    isInvariant = false;
    AffineExpr rest = expr - getAffineDimExpr(loop, op.getContext());
    if (strides[position] != 1 || rest.isFunctionOfDim(loop))
      isContiguous = false;
  }
  if (isInvariant)
    return 0;
  if (isContiguous)
    return kContiguousCost;
  // While the cache holds the lines, never worse than a reduction's chain.
  bool fits = !ShapedType::isDynamic(extent) && extent <= kMaxStridedExtent;
  return fits ? kStridedCost : 2 * kReductionCost;
}

/// Returns the loop to make innermost, or nothing if the costs are unknown.
std::optional<unsigned> chooseInnermost(linalg::GenericOp op) {
  SmallVector<utils::IteratorType> iterators = op.getIteratorTypesArray();
  SmallVector<int64_t> extents = op.getStaticLoopRanges();
  bool isFloat = llvm::any_of(op.getDpsInits(), [](Value init) {
    return isa<FloatType>(getElementTypeOrSelf(init.getType()));
  });
  std::optional<unsigned> best;
  double bestCost = 0;
  bool hasInnerReduction = false;
  for (unsigned loop = iterators.size(); loop-- > 0;) {
    double cost = 0;
    if (iterators[loop] != utils::IteratorType::parallel) {
      // The order of reduction loops must not change.
      if (hasInnerReduction)
        continue;
      hasInnerReduction = true;
      cost = isFloat ? kReductionCost : 0;
    }
    for (OpOperand &operand : op->getOpOperands()) {
      std::optional<double> access =
          getAccessCost(op, operand, loop, extents[loop]);
      if (!access)
        return std::nullopt;
      cost += *access;
    }
    if (!best || cost < bestCost) {
      best = loop;
      bestCost = cost;
    }
  }
  return best;
}

void orderLoops(RewriterBase &rewriter, linalg::LinalgOp op) {
  rewriter.setInsertionPoint(op);
  auto generic = dyn_cast<linalg::GenericOp>(op.getOperation());
  if (!generic) {
    FailureOr<linalg::GenericOp> generalized =
        linalg::generalizeNamedOp(rewriter, op);
    if (failed(generalized))
      return;
    generic = *generalized;
  }
  std::optional<unsigned> innermost = chooseInnermost(generic);
  if (!innermost || *innermost + 1 == generic.getNumLoops())
    return;
  SmallVector<unsigned> order;
  for (unsigned loop = 0; loop < generic.getNumLoops(); ++loop)
    if (loop != *innermost)
      order.push_back(loop);
  order.push_back(*innermost);
  rewriter.setInsertionPoint(generic);
  // Fails only for operations on tensors, which are not collected.
  (void)linalg::interchangeGenericOp(rewriter, generic, order);
}

struct OrderLoopsPass
    : public ddp::impl::DDPOrderLoopsPassBase<OrderLoopsPass> {
  void runOnOperation() override {
    SmallVector<linalg::LinalgOp> ops;
    getOperation().walk([&](linalg::LinalgOp op) {
      if (op.hasPureBufferSemantics() && op.getNumLoops() > 0)
        ops.push_back(op);
    });
    IRRewriter rewriter(&getContext());
    for (linalg::LinalgOp op : ops)
      orderLoops(rewriter, op);
  }
};
} // namespace
