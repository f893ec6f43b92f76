//===- BufferizeChains.cpp -------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds chains of tensors in one buffer in a single walk, and bufferizes them.
//
//===----------------------------------------------------------------------===//

#include "BufferizeChains.h"

#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/PatternMatch.h"
#include "llvm/ADT/IntEqClasses.h"

using namespace mlir;
using namespace mlir::bufferization;
using namespace mlir::ddp;

namespace {
/// Is shown the operations of a function in their order. Chains are followed
/// only in regions of one block, where this shows a result before its uses.
class ChainFinder {
public:
  explicit ChainFinder(const BufferizationOptions &options) : state(options) {}

  void visit(Operation *op);

  /// The operations to bufferize, in their order.
  SmallVector<Operation *> getPlainOps() const {
    SmallVector<Operation *> plain;
    for (auto [op, chain] : ops)
      if (linked.findLeader(chain) != kUnknown)
        plain.push_back(op);
    return plain;
  }

private:
  struct Chain {
    /// What the buffer holds after the operations that were visited.
    Value newest;
    bool isWritable;
  };
  /// Stands for all tensors that lie in no chain.
  static constexpr unsigned kUnknown = 0;

  unsigned addChain(Value start, bool isWritable) {
    chainOf[start] = chains.size();
    chains.push_back({start, isWritable});
    linked.grow(chains.size());
    return chains.size() - 1;
  }
  unsigned getChain(Value value) const { return chainOf.lookup(value); }
  bool canRead(OpOperand &operand) const;
  bool write(OpOperand &init, OpResult result);

  AnalysisState state;
  SmallVector<Chain> chains = {{Value(), false}};
  DenseMap<Value, unsigned> chainOf;
  /// Chains that one operation uses are bufferized together or not at all.
  llvm::IntEqClasses linked = llvm::IntEqClasses(1);
  SmallVector<std::pair<Operation *, unsigned>> ops;
};
} // namespace

/// Whether the operand is what its buffer holds when its operation runs.
bool ChainFinder::canRead(OpOperand &operand) const {
  unsigned chain = getChain(operand.get());
  return chain != kUnknown && chains[chain].newest == operand.get() &&
         operand.get().getParentBlock() == operand.getOwner()->getBlock();
}

/// Lets the operation write over the operand, if it may: if no other result is
/// written there, and what other operands read there is read in time.
bool ChainFinder::write(OpOperand &init, OpResult result) {
  unsigned number = getChain(init.get());
  Chain &chain = chains[number];
  auto op = cast<BufferizableOpInterface>(init.getOwner());
  if (!chain.isWritable || chain.newest != init.get() ||
      llvm::any_of(op->getOpOperands(), [&](OpOperand &other) {
        return &other != &init && other.get() == init.get() &&
               !op.bufferizesToElementwiseAccess(state, {&other, &init});
      }))
    return false;
  chain.newest = result;
  chainOf[result] = number;
  return true;
}

void ChainFinder::visit(Operation *op) {
  bool isFollowed = op->getBlock() && op->getParentRegion()->hasOneBlock();
  if (auto empty = dyn_cast<tensor::EmptyOp>(op)) {
    if (isFollowed)
      ops.emplace_back(op, addChain(empty, /*isWritable=*/true));
    return;
  }
  if (auto toTensor = dyn_cast<ToTensorOp>(op)) {
    if (isFollowed && toTensor.getRestrict())
      addChain(toTensor.getResult(), toTensor.getWritable());
    return;
  }

  auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
  bool isPlain =
      isa<BufferizableOpInterface>(op) &&
      ((linalgOp && linalgOp.hasPureTensorSemantics()) ||
       (isa<MaterializeInDestinationOp>(op) && !op->getNumResults()));
  SmallVector<unsigned> used;
  for (OpOperand &operand : op->getOpOperands()) {
    if (!isa<TensorType>(operand.get().getType()))
      continue;
    used.push_back(getChain(operand.get()));
    isPlain = isPlain && canRead(operand);
  }
  if (used.empty())
    return;
  if (isPlain) {
    ops.emplace_back(op, used.front());
    for (OpResult result : op->getResults())
      isPlain = isPlain && write(*linalgOp.getTiedOpOperand(result), result);
  }
  if (!isPlain)
    used.push_back(kUnknown);
  for (unsigned chain : used)
    linked.join(used.front(), chain);
}

LogicalResult mlir::ddp::bufferizeChains(func::FuncOp function,
                                         const BufferizationOptions &options,
                                         BufferizationState &state) {
  ChainFinder finder(options);
  function->walk<WalkOrder::PreOrder>([&](Operation *op) { finder.visit(op); });
  IRRewriter rewriter(function->getContext());
  auto bufferize = [&](BufferizableOpInterface op) -> LogicalResult {
    Location loc = op->getLoc();
    llvm::SmallSetVector<Value, 4> operands(llvm::from_range,
                                            op->getOperands());
    rewriter.setInsertionPoint(op);
    if (failed(op.bufferize(rewriter, options, state)))
      return emitError(loc, "failed to bufferize op");
    for (Value operand : operands)
      if (auto toTensor = operand.getDefiningOp<ToTensorOp>();
          toTensor && toTensor->use_empty())
        rewriter.eraseOp(toTensor);
    return success();
  };
  for (Operation *op : finder.getPlainOps()) {
    OpOperand *use = isa<tensor::EmptyOp>(op) && !op->use_empty()
                         ? &*op->getUses().begin()
                         : nullptr;
    if (failed(bufferize(cast<BufferizableOpInterface>(op))))
      return failure();
    // An empty tensor becomes an allocation, which is a tensor as well.
    if (use &&
        failed(bufferize(use->get().getDefiningOp<BufferizableOpInterface>())))
      return failure();
  }
  return success();
}
