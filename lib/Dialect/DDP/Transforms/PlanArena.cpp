// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-plan-arena: plans memory statically. Every buffer of a function gets an
// offset in one arena; buffers that are never alive together overlap.

#include "../Analysis/MemoryUses.h"
#include "../Analysis/ProgramWalk.h"
#include "ddphook/Dialect/DDP/IR/Remarks.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/Transforms/Transforms.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/DataLayoutInterfaces.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/MathExtras.h"

#define GEN_PASS_DEF_DDPPLANARENAPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
/// A buffer, and the first and last position at which it is alive.
struct Interval {
  memref::AllocOp alloc;
  int64_t begin, end;
  int64_t bytes;
  int64_t offset = 0;
};
} // namespace

/// Leaves headroom, so that sums of a few sizes do not overflow.
static constexpr int64_t kMaxBytes = int64_t(1) << 60;

/// Returns a + b, or a value above `kMaxBytes` if that is exceeded.
static int64_t addBytes(int64_t a, int64_t b) {
  return a + b > kMaxBytes ? kMaxBytes + 1 : a + b;
}

static int64_t getBytes(const DataLayout &layout, MemRefType type) {
  int64_t bytes = layout.getTypeSize(type.getElementType());
  for (int64_t dim : type.getShape())
    if (llvm::MulOverflow(bytes, dim, bytes) || bytes > kMaxBytes)
      return llvm::is_contained(type.getShape(), 0) ? 0 : kMaxBytes + 1;
  return llvm::alignTo(bytes, PlanAttr::kArenaAlignment);
}

static LogicalResult checkBuffer(memref::AllocOp alloc) {
  MemRefType type = alloc.getType();
  if (!type.hasStaticShape() || !type.getLayout().isIdentity())
    return alloc.emitOpError() << "expected a buffer of static shape and "
                               << "identity layout, but got " << type;
  if (!isa<IntegerType, IndexType, FloatType, ComplexType, VectorType>(
          type.getElementType()))
    return alloc.emitOpError()
           << "expected a buffer of numbers, but got " << type;
  if (alloc.getAlignment().value_or(0) > PlanAttr::kArenaAlignment)
    return alloc.emitOpError()
           << "expected a buffer aligned to " << PlanAttr::kArenaAlignment
           << " bytes at most, but got " << *alloc.getAlignment();
  if (getBytes(DataLayout::closest(alloc), type) > kMaxBytes)
    return alloc.emitOpError() << "expected a buffer of at most " << kMaxBytes
                               << " bytes, but got " << type;
  return success();
}

/// Finds the parallel loops around `op`, which allocates a buffer or calls a
/// function that may. Concurrent iterations would share that buffer. Fails for
/// a loop that cannot run its iterations one after another.
static LogicalResult
findParallelLoops(Operation *op, llvm::SmallDenseSet<Operation *> &loops) {
  for (Operation *around = op->getParentOp(); !isa<FunctionOpInterface>(around);
       around = around->getParentOp()) {
    if (!around->hasTrait<OpTrait::HasParallelRegion>())
      continue;
    if (!isa<scf::ForallOp, scf::ParallelOp>(around) ||
        around->getNumResults() != 0)
      return (op->emitOpError()
              << "expected no buffers in a region that may run concurrently "
                 "with itself, since each run needs its own")
                 .attachNote(around->getLoc())
             << "this may run concurrently with itself";
    loops.insert(around);
  }
  return success();
}

/// True if the operation calls a function whose buffers are planned.
static bool callsFunction(Operation *op) {
  auto call = dyn_cast<func::CallOp>(op);
  auto callee = call ? SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(
                           call, call.getCalleeAttr())
                     : func::FuncOp();
  return callee && !callee.isExternal();
}

/// Makes the iterations of a loop without results run one after another.
static void makeSequential(Operation *loop) {
  IRRewriter rewriter(loop);
  if (auto forall = dyn_cast<scf::ForallOp>(loop))
    (void)scf::forallToForLoop(rewriter, forall);
  else
    (void)scf::parallelForToNestedFors(rewriter, cast<scf::ParallelOp>(loop));
}

/// Collects all values that may alias the buffer `alloc` or a part of it, and
/// their users. Fails if the buffer leaves the function.
static LogicalResult collectUsers(memref::AllocOp alloc,
                                  llvm::SetVector<Value> &aliases,
                                  llvm::SetVector<Operation *> &users) {
  aliases.insert(alloc.getResult());
  for (unsigned i = 0; i < aliases.size(); ++i)
    for (OpOperand &use : aliases[i].getUses()) {
      Operation *user = use.getOwner();
      users.insert(user);
      if (isReturn(user))
        return failure();
      if (isa<memref::DeallocOp>(user))
        continue;
      // An operation with memref results may pass its operand on to them, a
      // branch to its successors, and a terminator to the operation around it.
      auto insertMemRefs = [&](ValueRange values) {
        for (Value value : values)
          if (isa<BaseMemRefType>(value.getType()))
            aliases.insert(value);
      };
      insertMemRefs(user->getResults());
      for (Region &region : user->getRegions())
        for (Block &block : region)
          insertMemRefs(block.getArguments());
      for (Block *successor : user->getSuccessors())
        insertMemRefs(successor->getArguments());
      if (user->hasTrait<OpTrait::IsTerminator>() &&
          !isa<FunctionOpInterface>(user->getParentOp())) {
        Operation *parent = user->getParentOp();
        users.insert(parent);
        if (auto values = getYieldedTo(use)) {
          insertMemRefs(*values);
          continue;
        }
        insertMemRefs(parent->getResults());
        for (Region &region : parent->getRegions())
          for (Block &block : region)
            insertMemRefs(block.getArguments());
      }
    }
  return success();
}

/// True if the buffer may still be needed when the allocation runs again and
/// returns the same memory: a dominating block gets it as an argument from an
/// earlier iteration.
static bool outlivesIteration(memref::AllocOp alloc, ArrayRef<Value> aliases,
                              DominanceInfo &dominance) {
  return llvm::any_of(aliases, [&](Value alias) {
    auto argument = dyn_cast<BlockArgument>(alias);
    if (!argument || argument.use_empty())
      return false;
    Block *block = argument.getOwner();
    Block *around =
        block->getParent()->findAncestorBlockInRegion(*alloc->getBlock());
    return around && dominance.dominates(block, around);
  });
}

/// Numbers the operations of a block in the order in which they may run. Those
/// in branches have their own positions, branch after branch; those in a loop,
/// or in any other region, have the position of the operation around them.
static void number(Block &block, int64_t &next,
                   llvm::DenseMap<Operation *, int64_t> &positions) {
  for (Operation &op : block) {
    positions[&op] = next++;
    if (!isa<scf::IfOp>(op))
      continue;
    for (Region &region : op.getRegions())
      for (Block &nested : region)
        number(nested, next, positions);
    // Values that branches yield are alive until the end of all branches.
    positions[&op] = next++;
  }
}

/// Returns the position of `op`, or of the nearest operation that has one.
static int64_t
getPosition(const llvm::DenseMap<Operation *, int64_t> &positions,
            Operation *op) {
  auto found = positions.find(op);
  while (found == positions.end()) {
    op = op->getParentOp();
    found = positions.find(op);
  }
  return found->second;
}

/// True if values of the type are handles of operations that may still use
/// memory, such as tokens and requests.
static bool isHandle(Type type) {
  return !isa<IntegerType, IndexType, FloatType, ComplexType, ShapedType>(type);
}

/// Returns the operations by which a buffer escapes: they, or operations around
/// them, turn it into an address or a handle, which cannot be followed.
static llvm::DenseSet<Operation *> findEscapes(func::FuncOp function) {
  llvm::DenseSet<Operation *> escapes;
  function.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (escapes.contains(op->getParentOp()) ||
        llvm::any_of(op->getResultTypes(), isHandle) ||
        isa<memref::ExtractAlignedPointerAsIndexOp, UnrealizedConversionCastOp>(
            op))
      escapes.insert(op);
  });
  return escapes;
}

/// Sets the lifetime from the first to the last user, or to the function's end
/// if the buffer escapes. Views do not count, since they do not access it.
static void setLifetime(Interval &interval,
                        const llvm::SetVector<Operation *> &users,
                        const llvm::DenseMap<Operation *, int64_t> &positions,
                        const llvm::DenseSet<Operation *> &escapes) {
  for (Operation *user : users) {
    if (isa<ViewLikeOpInterface>(user))
      continue;
    int64_t position = getPosition(positions, user);
    interval.begin = std::min(interval.begin, position);
    interval.end =
        escapes.contains(user) ? INT64_MAX : std::max(interval.end, position);
  }
  if (interval.begin == INT64_MAX)
    interval.begin = interval.end = getPosition(positions, interval.alloc);
}

/// Returns the buffers of a function, with their lifetimes in positions of its
/// operations. With several blocks (unstructured control flow) positions have
/// no meaning, and every buffer is alive throughout.
static FailureOr<std::vector<Interval>>
getIntervals(func::FuncOp function,
             llvm::SmallDenseSet<Operation *> &parallelLoops) {
  bool isStructured = function.getBody().hasOneBlock();
  const DataLayout layout = DataLayout::closest(function);
  llvm::DenseMap<Operation *, int64_t> positions;
  int64_t next = 0;
  number(function.front(), next, positions);

  const llvm::DenseSet<Operation *> escapes = findEscapes(function);
  DominanceInfo dominance(function);
  std::vector<Interval> intervals;
  WalkResult result = function.walk([&](Operation *op) {
    auto alloc = dyn_cast<memref::AllocOp>(op);
    if ((alloc || callsFunction(op)) &&
        failed(findParallelLoops(op, parallelLoops)))
      return WalkResult::interrupt();
    if (!alloc)
      return WalkResult::advance();
    if (failed(checkBuffer(alloc)))
      return WalkResult::interrupt();
    llvm::SetVector<Value> aliases;
    llvm::SetVector<Operation *> users;
    if (failed(collectUsers(alloc, aliases, users))) {
      InFlightDiagnostic error =
          alloc.emitOpError()
          << "expected a buffer that does not leave the function";
      if (llvm::any_of(users, llvm::IsaPred<func::ReturnOp>))
        error.attachNote(function.getLoc())
            << "'" << function.getName()
            << "' returns it: results become out-parameters only in private "
               "functions that only calls refer to";
      return WalkResult::interrupt();
    }
    const int64_t bytes = getBytes(layout, alloc.getType());
    // An empty buffer has no contents to lose.
    if (bytes != 0 &&
        outlivesIteration(alloc, aliases.getArrayRef(), dominance)) {
      alloc.emitOpError() << "expected a buffer that a loop does not pass to "
                             "its next iteration, which reuses the buffer's "
                             "memory";
      return WalkResult::interrupt();
    }
    // The next function that is called may reuse the memory of these buffers.
    for (Type type :
         llvm::make_filter_range(function.getResultTypes(), isHandle))
      if (llvm::any_of(users,
                       [&](Operation *op) { return escapes.contains(op); })) {
        alloc.emitOpError()
            << "expected a buffer that is not used after its function returns, "
               "but '"
            << function.getName() << "' returns a handle of type " << type
            << "; wait for it there, or pass the caller's buffer";
        return WalkResult::interrupt();
      }
    Interval interval{alloc, INT64_MAX, 0, bytes};
    if (isStructured) {
      setLifetime(interval, users, positions, escapes);
    } else {
      interval.begin = 0;
      interval.end = INT64_MAX;
    }
    intervals.push_back(interval);
    return WalkResult::advance();
  });
  if (result.wasInterrupted())
    return failure();
  return intervals;
}

/// Gives every interval an offset: that of the smallest free gap between
/// buffers that are alive with it, or the arena's end. Returns the bytes
/// needed, see addBytes().
static int64_t place(std::vector<Interval> &intervals) {
  llvm::stable_sort(intervals, [](const Interval &a, const Interval &b) {
    return a.begin < b.begin;
  });
  auto isBefore = [](const Interval *a, const Interval *b) {
    return a->offset < b->offset;
  };
  int64_t size = 0;
  SmallVector<Interval *> alive; // By offset.
  for (Interval &interval : intervals) {
    llvm::erase_if(
        alive, [&](Interval *other) { return other->end < interval.begin; });
    int64_t begin = 0, leastBytes = INT64_MAX;
    std::optional<int64_t> best;
    auto considerGapUpTo = [&](int64_t end) {
      if (end - begin >= interval.bytes && end - begin < leastBytes) {
        best = begin;
        leastBytes = end - begin;
      }
    };
    for (Interval *other : alive) {
      considerGapUpTo(other->offset);
      begin = addBytes(other->offset, other->bytes);
    }
    considerGapUpTo(size);
    interval.offset = best.value_or(begin);
    size = std::max(size, addBytes(interval.offset, interval.bytes));
    if (interval.bytes != 0)
      alive.insert(llvm::upper_bound(alive, &interval, isBefore), &interval);
  }
  return size;
}

namespace {
struct PlanArenaPass : public ddp::impl::DDPPlanArenaPassBase<PlanArenaPass> {
  struct Plan {
    func::FuncOp function;
    std::vector<Interval> intervals;
    /// Loops that contain buffers and whose iterations may run concurrently.
    llvm::SmallDenseSet<Operation *> parallelLoops;
    int64_t bytes = 0;
    /// The offset of its part of the arena, after the parts of all its callers.
    int64_t base = 0;
  };

  /// Computes bases from callers to callees.
  LogicalResult assignBases(llvm::MapVector<Operation *, Plan> &plans) {
    SymbolTableCollection symbols;
    // Longest path over an acyclic call graph, by relaxation: one round per
    // function is enough.
    llvm::DenseMap<Operation *, llvm::SetVector<Operation *>> callees;
    if (plans.size() > 1)
      for (auto &[op, plan] : plans)
        op->walk([&, op = op](CallOpInterface call) {
          if (Operation *callee = call.resolveCallableInTable(&symbols))
            if (plans.contains(callee))
              callees[op].insert(callee);
        });
    for (unsigned round = 0; round <= plans.size(); ++round) {
      bool changed = false;
      for (auto &[op, plan] : plans)
        for (Operation *callee : callees[op]) {
          int64_t &base = plans[callee].base;
          int64_t needed = addBytes(plan.base, plan.bytes);
          // A cycle of functions without buffers is harmless.
          if (base < needed) {
            base = needed;
            changed = true;
          }
        }
      if (!changed)
        return success();
    }
    return emitError(getOperation().getLoc())
           << "expected functions with buffers not to call each other in a "
              "cycle";
  }

  void runOnOperation() override {
    llvm::MapVector<Operation *, Plan> plans;
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal())
        continue;
      llvm::SmallDenseSet<Operation *> parallelLoops;
      FailureOr<std::vector<Interval>> intervals =
          getIntervals(function, parallelLoops);
      if (failed(intervals))
        return signalPassFailure();
      Plan plan{function, std::move(*intervals), std::move(parallelLoops)};
      plan.bytes = place(plan.intervals);
      plans.insert({function, std::move(plan)});
    }
    if (failed(assignBases(plans)))
      return signalPassFailure();
    for (auto &[op, plan] : plans)
      if (addBytes(plan.base, plan.bytes) > kMaxBytes) {
        plan.function.emitOpError()
            << "expected buffers of at most " << kMaxBytes
            << " bytes in total, including those of its callers";
        return signalPassFailure();
      }
    for (auto &[op, plan] : plans) {
      rewrite(plan);
      // Inner loops first: outer ones are rebuilt.
      plan.function.walk([&, &loops = plan.parallelLoops](Operation *nested) {
        if (loops.contains(nested))
          makeSequential(nested);
      });
    }
  }

  static void rewrite(Plan &plan) {
    if (plan.intervals.empty())
      return;
    OpBuilder builder(&plan.function.front(), plan.function.front().begin());
    Location loc = plan.function.getLoc();
    auto arenaType =
        MemRefType::get({plan.base + plan.bytes}, builder.getI8Type());
    Value arena = ArenaOp::create(builder, loc, arenaType);
    for (Interval &interval : plan.intervals) {
      memref::AllocOp alloc = interval.alloc;
      builder.setInsertionPoint(alloc);
      Value offset = arith::ConstantIndexOp::create(
          builder, alloc.getLoc(), plan.base + interval.offset);
      Value view =
          memref::ViewOp::create(builder, alloc.getLoc(), alloc.getType(),
                                 arena, offset, ValueRange());
      for (Operation *user : llvm::make_early_inc_range(alloc->getUsers()))
        if (isa<memref::DeallocOp>(user))
          user->erase();
      alloc.replaceAllUsesWith(view);
      alloc.erase();
    }
    remark::analysis(loc, remarkOf("Arena", "ddp-plan-arena"))
        << plan.function.getSymName()
        << remark::metric("buffers", plan.intervals.size())
        << remark::metric("bytes", plan.bytes);
  }
};
} // namespace
