// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-legalize-for-bufferization: rewrites operations that One-Shot Bufferize
// of MLIR 22 would silently miscompile.

#include "../Analysis/MemoryUses.h"
#include "Utils/Arrays.h"
#include "Utils/CallGraph.h"

#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "mlir/Transforms/RegionUtils.h"

#define GEN_PASS_DEF_DDPLEGALIZEFORBUFFERIZATIONPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

/// True if the body of the map uses the destination's old contents.
static bool readsDestination(linalg::MapOp map) {
  Block *body = map.getBody();
  return body->getNumArguments() > map.getInputs().size() &&
         !body->getArguments().back().use_empty();
}

/// Replaces the map by a `linalg.generic`. One-Shot Bufferize assumes that the
/// destination of a `linalg.map` is only written, and would give it a new
/// buffer without the old values.
static void generalize(linalg::MapOp map, RewriterBase &rewriter) {
  rewriter.setInsertionPoint(map);
  (void)linalg::generalizeNamedOp(rewriter, map);
}

/// True if the operation has no iterations. Checks the shapes of its operands
/// first, since computing the loop ranges is slow.
static bool isEmpty(linalg::LinalgOp op) {
  bool mayBeEmpty = llvm::any_of(op->getOperandTypes(), [](Type type) {
    auto shaped = dyn_cast<ShapedType>(type);
    return shaped && shaped.hasRank() &&
           llvm::is_contained(shaped.getShape(), 0);
  });
  return mayBeEmpty && llvm::is_contained(op.getStaticLoopRanges(), 0);
}

/// Makes the destinations keep the elements that the operation does not write.
/// An operation without iterations, such as a sum over no elements, returns its
/// destinations unchanged, and others write only a part of them; One-Shot
/// Bufferize assumes that a destination is overwritten completely if the body
/// does not read it. Returns true if that changed anything.
static bool keepUnwritten(linalg::LinalgOp op, RewriterBase &rewriter) {
  if (isEmpty(op)) {
    SmallVector<Value> inits(op.getDpsInits());
    rewriter.replaceOp(op, inits);
    return true;
  }
  bool hasChanged = false;
  rewriter.setInsertionPoint(op);
  for (OpOperand &init : op.getDpsInitsMutable())
    if (!op.getMatchingIndexingMap(&init).isProjectedPermutation() &&
        !op.payloadUsesValueFromOperand(&init)) {
      init.set(createCopy(rewriter, op.getLoc(), init.get()));
      hasChanged = true;
    }
  return hasChanged;
}

/// Moves the block of a region of the switch into a branch.
static void moveBody(Region &from, Region &to) {
  if (!to.empty())
    to.front().erase();
  to.takeBody(from);
}

/// Replaces the switch by a chain of `scf.if`s. One-Shot Bufferize treats the
/// result of an `scf.index_switch` as new memory, even if a case yields a
/// tensor that is still needed or must not be written.
static void expand(scf::IndexSwitchOp op, RewriterBase &rewriter) {
  Location loc = op.getLoc();
  TypeRange types = op.getResultTypes();
  if (op.getCases().empty()) {
    rewriter.setInsertionPoint(op);
    auto whole = scf::ExecuteRegionOp::create(rewriter, loc, types);
    moveBody(op.getDefaultRegion(), whole.getRegion());
    rewriter.replaceOp(op, whole);
    return;
  }
  rewriter.setInsertionPoint(op);
  scf::IfOp first;
  for (auto [value, region] : llvm::zip(op.getCases(), op.getCaseRegions())) {
    Value constant = arith::ConstantIndexOp::create(rewriter, loc, value);
    Value isCase = arith::CmpIOp::create(
        rewriter, loc, arith::CmpIPredicate::eq, op.getArg(), constant);
    auto choice = scf::IfOp::create(rewriter, loc, types, isCase,
                                    /*addThenBlock=*/true,
                                    /*addElseBlock=*/true);
    moveBody(region, choice.getThenRegion());
    if (first)
      scf::YieldOp::create(rewriter, loc, choice.getResults());
    else
      first = choice;
    rewriter.setInsertionPointToStart(&choice.getElseRegion().front());
    if (&region == &op.getCaseRegions().back())
      moveBody(op.getDefaultRegion(), choice.getElseRegion());
  }
  rewriter.replaceOp(op, first);
}

/// Makes all blocks that yield from the region branch to a single one that
/// yields, because One-Shot Bufferize refuses several.
static void joinYields(scf::ExecuteRegionOp op, RewriterBase &rewriter) {
  auto yields = llvm::to_vector(op.getRegion().getOps<scf::YieldOp>());
  if (yields.size() < 2)
    return;
  SmallVector<Location> locs(op.getNumResults(), op.getLoc());
  Block *join = rewriter.createBlock(&op.getRegion(), op.getRegion().end(),
                                     op.getResultTypes(), locs);
  scf::YieldOp::create(rewriter, op.getLoc(), join->getArguments());
  for (scf::YieldOp yield : yields) {
    rewriter.setInsertionPoint(yield);
    rewriter.replaceOpWithNewOp<cf::BranchOp>(yield, join, yield.getOperands());
  }
}

/// Returns the insertion into a parallel loop's output of which `use` is the
/// destination, or null.
static tensor::ParallelInsertSliceOp getInsertion(OpOperand &use) {
  auto insertion = dyn_cast<tensor::ParallelInsertSliceOp>(use.getOwner());
  return insertion && &insertion.getDestMutable() == &use ? insertion : nullptr;
}

/// True if insertions into an output cannot affect a slice of it that is still
/// needed: only `insertion` writes the same slice, in the iteration that reads
/// it, and no other insertion reads the slice's memory.
static bool isOverBy(tensor::ExtractSliceOp slice,
                     tensor::ParallelInsertSliceOp insertion) {
  auto isEqual = [](OpFoldResult a, OpFoldResult b) { return a == b; };
  auto place = cast<OffsetSizeAndStrideOpInterface>(slice.getOperation());
  if (!place.isSameAs(insertion, isEqual))
    return false;
  return !visitMemoryUses(slice.getResult(), [&](OpOperand &use) {
            if (!isa<tensor::ParallelInsertSliceOp>(use.getOwner()))
              return WalkResult::advance();
            return use.getOwner() == insertion ? WalkResult::skip()
                                               : WalkResult::interrupt();
          }).wasInterrupted();
}

/// Makes each iteration of a loop that One-Shot Bufferize does not know, such
/// as `scf.parallel` on memory, write to a copy of an outer tensor: the
/// analysis does not see that the next iteration needs the original. Returns
/// true if that changed anything.
static bool keepOuterTensors(Operation *loop, RewriterBase &rewriter) {
  static const bufferization::BufferizationOptions options;
  bufferization::AnalysisState state(options);
  llvm::SetVector<Value> outer;
  getUsedValuesDefinedAbove(loop->getRegions(), outer);
  bool hasChanged = false;
  for (Value tensor : outer) {
    if (!isa<RankedTensorType>(tensor.getType()))
      continue;
    WalkResult uses = visitMemoryUses(tensor, [&](OpOperand &use) {
      if (!loop->isProperAncestor(use.getOwner()))
        return WalkResult::skip();
      return state.bufferizesToMemoryWrite(use) ? WalkResult::interrupt()
                                                : WalkResult::advance();
    });
    if (!uses.wasInterrupted())
      continue;
    rewriter.setInsertionPointToStart(&loop->getRegion(0).front());
    Value copy = createCopy(rewriter, loop->getLoc(), tensor);
    tensor.replaceUsesWithIf(copy, [&](OpOperand &use) {
      return loop->isProperAncestor(use.getOwner()) &&
             use.getOwner() != copy.getDefiningOp();
    });
    hasChanged = true;
  }
  return hasChanged;
}

/// Makes iterations read an output's value from before the loop. One-Shot
/// Bufferize would let them read insertions of other iterations, and let an
/// insertion read earlier ones. Returns true if that changed anything.
static bool readInits(scf::ForallOp loop) {
  bool hasChanged = false;
  for (auto [output, init] :
       llvm::zip(loop.getRegionIterArgs(), loop.getOutputs())) {
    SmallVector<tensor::ParallelInsertSliceOp> insertions;
    SmallVector<OpOperand *> reads;
    for (OpOperand &use : output.getUses())
      if (auto insertion = getInsertion(use))
        insertions.push_back(insertion);
      else
        reads.push_back(&use);
    for (OpOperand *read : reads) {
      auto slice = dyn_cast<tensor::ExtractSliceOp>(read->getOwner());
      if (slice && insertions.size() == 1 &&
          isOverBy(slice, insertions.front()))
        continue;
      read->set(init);
      hasChanged = true;
    }
  }
  return hasChanged;
}

/// Replaces a selection by a branch. One-Shot Bufferize wants the operands and
/// the result of an `arith.select` in one alias set, and refuses it if an
/// operand is still needed; for a branch it makes a copy.
static void expand(arith::SelectOp op, RewriterBase &rewriter) {
  rewriter.setInsertionPoint(op);
  rewriter.replaceOpWithNewOp<scf::IfOp>(
      op, op.getCondition(),
      [&](OpBuilder &builder, Location loc) {
        scf::YieldOp::create(builder, loc, op.getTrueValue());
      },
      [&](OpBuilder &builder, Location loc) {
        scf::YieldOp::create(builder, loc, op.getFalseValue());
      });
}

/// Sets the strides of dimensions of size 1, which have no meaning, to 1.
/// Otherwise a slice that drops one of several such dimensions is ambiguous,
/// and `expand-strided-metadata` crashes.
template <typename SliceOp>
static void normalizeStrides(SliceOp slice) {
  SmallVector<int64_t> strides(slice.getStaticStrides());
  for (auto [size, stride] : llvm::zip(slice.getStaticSizes(), strides))
    if (size == 1 && !ShapedType::isDynamic(stride))
      stride = 1;
  slice.setStaticStrides(strides);
}

/// Returns the values that may share memory with `value`, including itself, but
/// not an operand that an operation overwrites: nothing needs both.
static llvm::SetVector<Value> findSources(Value value) {
  static const bufferization::BufferizationOptions options;
  bufferization::AnalysisState state(options);
  llvm::SetVector<Value> sources;
  sources.insert(value);
  for (unsigned i = 0; i < sources.size(); ++i) {
    Operation *op = sources[i].getDefiningOp();
    if (!isa_and_nonnull<bufferization::BufferizableOpInterface>(op) ||
        isa<DestinationStyleOpInterface>(op))
      continue;
    for (const bufferization::AliasingOpOperand &alias :
         state.getAliasingOpOperands(sources[i]))
      sources.insert(alias.opOperand->get());
  }
  return sources;
}

/// Gives each result of a function separate memory. One-Shot Bufferize knows
/// which results share memory with an argument, but not that two results may
/// share memory; it would let the caller overwrite the first while writing the
/// second. `ddp-fold-results` handles results that are equal at every return.
static bool separateResults(func::FuncOp function, RewriterBase &rewriter) {
  bool hasChanged = false;
  SmallVector<func::ReturnOp> returns = getReturns(function);
  SmallVector<unsigned> firstEqual =
      findFirstEqual(returns, function.getNumResults());
  for (func::ReturnOp op : returns) {
    // For each memory, the first of the equal results that it belongs to.
    llvm::DenseMap<Value, unsigned> owners;
    rewriter.setInsertionPoint(op);
    for (OpOperand &operand : op->getOpOperands()) {
      Value value = operand.get();
      if (!isa<RankedTensorType>(value.getType()))
        continue;
      unsigned number = firstEqual[operand.getOperandNumber()];
      llvm::SetVector<Value> sources = findSources(value);
      bool isShared = llvm::any_of(sources, [&](Value source) {
        auto owner = owners.find(source);
        return owner != owners.end() && owner->second != number;
      });
      if (isShared) {
        operand.set(createCopy(rewriter, op.getLoc(), value));
        hasChanged = true;
        continue;
      }
      for (Value source : sources)
        owners.try_emplace(source, number);
    }
  }
  return hasChanged;
}

/// Returns true if the operation may have changed.
static bool legalize(Operation *op, RewriterBase &rewriter) {
  if (auto region = dyn_cast<scf::ExecuteRegionOp>(op)) {
    joinYields(region, rewriter);
    return true;
  }
  if (isa<LoopLikeOpInterface>(op) &&
      !isa<bufferization::BufferizableOpInterface>(op))
    return keepOuterTensors(op, rewriter);
  // Buckets become tensors.
  if (llvm::none_of(op->getResultTypes(),
                    llvm::IsaPred<TensorType, BucketType>))
    return false;
  if (auto map = dyn_cast<linalg::MapOp>(op); map && readsDestination(map))
    generalize(map, rewriter);
  else if (auto copy = dyn_cast<linalg::CopyOp>(op);
           copy && copy.getInputs() == copy.getOutputs())
    // One-Shot Bufferize does not count this as a write, and would leave the
    // result in memory that a collective in flight uses.
    rewriter.replaceOp(copy, copy.getInputs());
  else if (auto move = dyn_cast<bufferization::MaterializeInDestinationOp>(op);
           move && move.getSource() == move.getDest())
    // The same holds here.
    rewriter.replaceOp(move, move.getSource());
  else if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op))
    return keepUnwritten(linalgOp, rewriter);
  else if (auto choice = dyn_cast<scf::IndexSwitchOp>(op))
    expand(choice, rewriter);
  else if (auto choice = dyn_cast<arith::SelectOp>(op);
           choice && choice.getCondition().getType().isInteger(1))
    expand(choice, rewriter);
  else if (auto loop = dyn_cast<scf::ForallOp>(op))
    return readInits(loop);
  else if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op))
    normalizeStrides(slice);
  else if (auto slice = dyn_cast<tensor::InsertSliceOp>(op))
    normalizeStrides(slice);
  else
    return false;
  return true;
}

namespace {
struct LegalizeForBufferizationPass
    : public ddp::impl::DDPLegalizeForBufferizationPassBase<
          LegalizeForBufferizationPass> {
  void runOnOperation() override {
    IRRewriter rewriter(&getContext());
    bool hasChanged = false;
    getOperation()->walk(
        [&](Operation *op) { hasChanged |= legalize(op, rewriter); });
    // Public functions become private ones if they are called. By now, apparent
    // writes have been replaced by the values they leave.
    if (auto function = dyn_cast<func::FuncOp>(getOperation().getOperation());
        function && !function.isExternal())
      hasChanged |= separateResults(function, rewriter);
    if (!hasChanged)
      markAllAnalysesPreserved();
  }
};
} // namespace
