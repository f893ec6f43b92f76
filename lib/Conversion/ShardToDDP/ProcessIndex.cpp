// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A loop that adds up starts from its destination's values. If it is split over
// processes, upstream's partitioner lets one process start from them and the
// others from zeros. Gradients start from zeros anyway, so the branch on the
// process's index can be folded.

#include "GridCollectives.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Shard/IR/ShardDialect.h"
#include "mlir/Dialect/Shard/IR/ShardOps.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
/// Compares the computations of values.
class Equivalence {
public:
  bool areEqual(Value lhs, Value rhs, unsigned depth = 0);

private:
  /// Values found equal: results, and arguments of compared blocks.
  DenseMap<Value, Value> equals;
};
} // namespace

bool Equivalence::areEqual(Value lhs, Value rhs, unsigned depth) {
  // Enough for a constant that is spread over a tensor. Limits the recursion in
  // other programs.
  constexpr unsigned maxDepth = 16;
  if (lhs == rhs || equals.lookup(lhs) == rhs)
    return true;
  auto left = dyn_cast<OpResult>(lhs), right = dyn_cast<OpResult>(rhs);
  if (!left || !right || depth == maxDepth ||
      left.getResultNumber() != right.getResultNumber() ||
      !isMemoryEffectFree(left.getOwner()))
    return false;
  auto mark = [&](Value a, Value b) { equals[a] = b; };
  bool equal = OperationEquivalence::isEquivalentTo(
      left.getOwner(), right.getOwner(),
      [&](Value a, Value b) { return success(areEqual(a, b, depth + 1)); },
      mark, OperationEquivalence::IgnoreLocations);
  if (equal)
    mark(lhs, rhs);
  return equal;
}

/// Returns true if both branches yield the same values and do nothing else.
static bool hasEqualBranches(scf::IfOp op) {
  if (op.getElseRegion().empty() || !isMemoryEffectFree(op))
    return false;
  Equivalence equivalence;
  return llvm::all_of(llvm::zip_equal(op.thenYield().getOperands(),
                                      op.elseYield().getOperands()),
                      [&](auto values) {
                        return equivalence.areEqual(std::get<0>(values),
                                                    std::get<1>(values));
                      });
}

/// Returns the branches whose condition depends on the process's index, inner
/// ones first.
static SmallVector<scf::IfOp> findBranches(Operation *root) {
  SmallVector<Value> worklist;
  root->walk([&](Operation *op) {
    if (isa<shard::ProcessLinearIndexOp, shard::ProcessMultiIndexOp>(op))
      llvm::append_range(worklist, op->getResults());
  });
  DenseSet<Operation *> branches;
  DenseSet<Value> seen;
  while (!worklist.empty()) {
    Value value = worklist.pop_back_val();
    if (!seen.insert(value).second)
      continue;
    for (Operation *user : value.getUsers()) {
      if (isa<scf::IfOp>(user))
        branches.insert(user);
      else if (user->getNumRegions() == 0)
        for (Value result : user->getResults())
          if (result.getType().isIntOrIndex())
            worklist.push_back(result);
    }
  }
  SmallVector<scf::IfOp> ordered;
  if (!branches.empty())
    root->walk([&](scf::IfOp op) {
      if (branches.contains(op))
        ordered.push_back(op);
    });
  return ordered;
}

/// Erases the operation of `value`, and those of its operands, if unused.
static void eraseUnused(Value value, RewriterBase &rewriter) {
  SmallVector<Value> worklist{value};
  while (!worklist.empty()) {
    Operation *op = worklist.pop_back_val().getDefiningOp();
    // Other branches stay until they are visited.
    if (!op || op->getNumRegions() != 0 || !isOpTriviallyDead(op))
      continue;
    llvm::erase_if(worklist,
                   [&](Value other) { return other.getDefiningOp() == op; });
    llvm::append_range(worklist, op->getOperands());
    rewriter.eraseOp(op);
  }
}

static void replaceGridShape(shard::GridShapeOp op, RewriterBase &rewriter,
                             SymbolTableCollection &symbols) {
  if (op->use_empty())
    return rewriter.eraseOp(op);
  ArrayRef<int64_t> shape = shard::getGrid(op, symbols).getShape();
  SmallVector<int64_t> sizes(shape);
  if (!op.getAxes().empty())
    sizes = llvm::map_to_vector(op.getAxes(),
                                [&](int16_t axis) { return shape[axis]; });
  if (llvm::is_contained(sizes, ShapedType::kDynamic))
    return;
  rewriter.setInsertionPoint(op);
  SmallVector<Value> constants;
  for (int64_t size : sizes)
    constants.push_back(
        arith::ConstantIndexOp::create(rewriter, op.getLoc(), size));
  rewriter.replaceOp(op, constants);
}

void mlir::ddp::foldProcessIndices(Operation *root) {
  IRRewriter rewriter(root->getContext());
  for (scf::IfOp op : findBranches(root)) {
    if (!hasEqualBranches(op))
      continue;
    Value condition = op.getCondition();
    scf::YieldOp yield = op.thenYield();
    rewriter.inlineBlockBefore(op.thenBlock(), op);
    rewriter.replaceOp(op, yield.getOperands());
    rewriter.eraseOp(yield);
    eraseUnused(condition, rewriter);
  }
  SymbolTableCollection symbols;
  root->walk(
      [&](shard::GridShapeOp op) { replaceGridShape(op, rewriter, symbols); });
}
