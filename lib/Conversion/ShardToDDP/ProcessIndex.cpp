//===- ProcessIndex.cpp ----------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A loop that adds up begins with its destination's values. Where the loop is
// split over processes, upstream's partitioner lets one process begin with them
// and the others with zeros. A gradient begins with zeros anyway; then nobody
// needs to know which process it is.
//
//===----------------------------------------------------------------------===//

#include "ProcessIndex.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Shard/IR/ShardDialect.h"
#include "mlir/Dialect/Shard/IR/ShardOps.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
/// Compares what values are computed from.
class Equivalence {
public:
  bool areEqual(Value lhs, Value rhs, unsigned depth = 0);

private:
  /// Values that are equal to another one: arguments of blocks that were
  /// compared and results.
  DenseMap<Value, Value> equals;
};
} // namespace

bool Equivalence::areEqual(Value lhs, Value rhs, unsigned depth) {
  // More than enough for a constant that is spread over a tensor; keeps the
  // comparison's stack small in programs that nobody meant to be compared.
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

/// Whether both branches give the same values and do nothing else.
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

/// The branches whose condition is computed from the process's index, inner
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

/// Removes the operation of `value`, and those of its operands, as far as
/// nothing uses them.
static void eraseUnused(Value value, RewriterBase &rewriter) {
  SmallVector<Value> worklist{value};
  while (!worklist.empty()) {
    Operation *op = worklist.pop_back_val().getDefiningOp();
    // Another branch stays until it is looked at.
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
