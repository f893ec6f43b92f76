// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds chains of tensors in one buffer in a single walk, and bufferizes them.

#include "BufferizeChains.h"
#include "Arrays.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/PatternMatch.h"
#include "llvm/ADT/IntEqClasses.h"

using namespace mlir;
using namespace mlir::bufferization;
using namespace mlir::ddp;

namespace {
/// Visits the operations of a function in order. Chains are followed only in
/// regions of one block, where a result is visited before its uses.
class ChainFinder {
public:
  explicit ChainFinder(const BufferizationOptions &options) : state(options) {}

  void visit(Operation *op);

  /// Destinations of insertions that have to be copied first, and sources of
  /// insertions that are in no chain and are read in their memory.
  SetVector<OpOperand *> copied, foreign;

  /// The operations to bufferize, in order.
  SmallVector<Operation *> getPlainOps() const {
    SmallVector<Operation *> plain;
    for (auto [op, chain] : ops)
      if (linked.findLeader(chain) != kUnknown)
        plain.push_back(op);
    return plain;
  }

private:
  struct Chain {
    /// The buffer's contents after the operations visited so far.
    Value newest;
    bool isWritable;
  };
  /// Represents all tensors that are in no chain.
  static constexpr unsigned kUnknown = 0;

  unsigned addChain(Value start, bool isWritable) {
    chainOf[start] = chains.size();
    chains.push_back({start, isWritable});
    linked.grow(chains.size());
    return chains.size() - 1;
  }
  unsigned getChain(Value value) const { return chainOf.lookup(value); }
  /// Returns the tensor that `value` is a slice or a reshape of, or `value`.
  Value getWhole(Value value) const {
    Value whole = wholeOf.lookup(value);
    return whole ? whole : value;
  }
  bool canRead(OpOperand &operand) const;
  bool needsCopy(Operation *view) const;
  bool write(OpOperand &init, OpResult result);
  void visitInsert(tensor::InsertSliceOp insert);

  AnalysisState state;
  SmallVector<Chain> chains = {{Value(), false}};
  DenseMap<Value, unsigned> chainOf;
  /// The tensor of which a value is a slice or a reshape, in the same chain.
  DenseMap<Value, Value> wholeOf;
  /// Chains that one operation uses are bufferized together or not at all.
  llvm::IntEqClasses linked = llvm::IntEqClasses(1);
  SmallVector<std::pair<Operation *, unsigned>> ops;
};
} // namespace

/// Returns true if the operand, or the tensor that it is a slice or a reshape
/// of, is the current content of its buffer when its operation runs.
bool ChainFinder::canRead(OpOperand &operand) const {
  unsigned chain = getChain(operand.get());
  return chain != kUnknown && chains[chain].newest == getWhole(operand.get()) &&
         operand.get().getParentBlock() == operand.getOwner()->getBlock();
}

/// Returns true if the view collapses dimensions that are not contiguous in its
/// source's memory.
bool ChainFinder::needsCopy(Operation *view) const {
  auto collapse = dyn_cast<tensor::CollapseShapeOp>(view);
  if (!collapse)
    return false;
  BufferizationState memory;
  FailureOr<BufferLikeType> type =
      getBufferType(collapse.getSrc(), state.getOptions(), memory);
  return failed(type) ||
         !memref::CollapseShapeOp::isGuaranteedCollapsible(
             cast<MemRefType>(*type), collapse.getReassociationIndices());
}

/// Makes the operation overwrite the operand. Returns false if it may not, for
/// example because another operand reads that buffer too late.
bool ChainFinder::write(OpOperand &init, OpResult result) {
  unsigned number = getChain(init.get());
  Chain &chain = chains[number];
  auto op = cast<BufferizableOpInterface>(init.getOwner());
  if (!chain.isWritable || chain.newest != init.get() ||
      llvm::any_of(op->getOpOperands(), [&](OpOperand &other) {
        return &other != &init && getWhole(other.get()) == init.get() &&
               (other.get() != init.get() ||
                !op.bufferizesToElementwiseAccess(state, {&other, &init}));
      }))
    return false;
  chain.newest = result;
  chainOf[result] = number;
  return true;
}

/// Adds an insertion to the chain of its destination. The source may be in any
/// other chain or in none, since the insertion only reads it.
void ChainFinder::visitInsert(tensor::InsertSliceOp insert) {
  OpOperand &source = insert.getSourceMutable(),
            &init = insert.getDestMutable();
  unsigned from = getChain(source.get()), into = getChain(init.get());
  bool isPlain =
      canRead(init) && from != into && (from == kUnknown || canRead(source));
  if (isPlain && !chains[into].isWritable) {
    unsigned copy = addChain(insert.getResult(), /*isWritable=*/true);
    linked.join(into, copy);
    into = copy;
    copied.insert(&init);
  } else if (isPlain) {
    isPlain = write(init, insert->getResult(0));
  }
  if (!isPlain) {
    linked.join(into, kUnknown);
    linked.join(from, kUnknown);
    return;
  }
  ops.emplace_back(insert, into);
  if (from == kUnknown)
    foreign.insert(&source);
  else
    linked.join(into, from);
}

void ChainFinder::visit(Operation *op) {
  bool isFollowed = op->getBlock() && op->getParentRegion()->hasOneBlock();
  auto alloc = dyn_cast<AllocTensorOp>(op);
  bool isConstant =
      isa<arith::ConstantOp>(op) && isa<TensorType>(op->getResult(0).getType());
  if ((alloc && !alloc.getCopy()) || isConstant) {
    if (isFollowed)
      ops.emplace_back(op,
                       addChain(op->getResult(0), /*isWritable=*/!isConstant));
    return;
  }
  if (auto toTensor = dyn_cast<ToTensorOp>(op)) {
    if (isFollowed && toTensor.getRestrict())
      addChain(toTensor.getResult(), toTensor.getWritable());
    return;
  }

  if (auto insert = dyn_cast<tensor::InsertSliceOp>(op); insert && isFollowed)
    return visitInsert(insert);
  if (isa<tensor::ExtractSliceOp, tensor::CollapseShapeOp,
          tensor::ExpandShapeOp>(op) &&
      isFollowed && canRead(op->getOpOperand(0)) && !needsCopy(op)) {
    Value source = op->getOperand(0), view = op->getResult(0);
    unsigned chain = getChain(source);
    ops.emplace_back(op, chain);
    chainOf[view] = chain;
    wholeOf[view] = getWhole(source);
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
    rewriter.setInsertionPoint(op);
    for (OpOperand &operand : op->getOpOperands())
      if (finder.copied.contains(&operand)) {
        operand.set(createCopy(rewriter, op->getLoc(), operand.get()));
        if (failed(bufferize(
                operand.get().getDefiningOp<BufferizableOpInterface>())))
          return failure();
      } else if (finder.foreign.contains(&operand)) {
        FailureOr<BufferLikeType> type =
            getBufferType(operand.get(), options, state);
        if (failed(type))
          return failure();
        Value memory =
            ToBufferOp::create(rewriter, op->getLoc(), *type, operand.get(),
                               /*read_only=*/true);
        operand.set(createRead(rewriter, op->getLoc(), operand.get().getType(),
                               memory, /*isWritable=*/false));
      }
    if (failed(bufferize(cast<BufferizableOpInterface>(op))))
      return failure();
  }
  // Views that nothing uses leave a tensor that One-Shot would refuse.
  function->walk([&](ToTensorOp toTensor) {
    if (!toTensor.getRestrict() && toTensor->use_empty())
      rewriter.eraseOp(toTensor);
  });
  return success();
}
