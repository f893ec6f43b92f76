// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-overlap: splits collectives into start and wait, and moves independent
// operations between the two.

#include "../Analysis/ProgramWalk.h"
#include "Utils/HoistCollectives.h"
#include "ddphook/Dialect/DDP/IR/Remarks.h"

#include <deque>
#include <queue>

#define GEN_PASS_DEF_DDPOVERLAPPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

/// Returns `op` if it is a collective that can be split, or null: a blocking
/// one on values, whose destination is still open. One whose parts are assigned
/// to the ranks of a node is excluded, since it is copied before and after.
static CollectiveOpInterface getSplittable(Operation *op) {
  return isWholeOnValues(op) && !getAssignment(op)
             ? cast<CollectiveOpInterface>(op)
             : CollectiveOpInterface();
}

static bool isExchange(Operation *op) {
  auto collective = dyn_cast<CollectiveOpInterface>(op);
  return collective && collective.getKind() != CollectiveKind::AllReduce;
}

/// Returns `op` if it starts an all-reduce that branches await, or null.
static AllReduceStartOp getConditionalStart(Operation *op) {
  auto start = dyn_cast<AllReduceStartOp>(op);
  return start && start.getCondition() ? start : AllReduceStartOp();
}

/// True if `value` is the packed bucket, at most cast, resized, scaled, reduced
/// or added to an error, rather than something smaller that a hook computed.
static bool isBucketItself(Value value) {
  // Visit each value once: a chain of sums has exponentially many paths.
  llvm::SetVector<Value> sources;
  sources.insert(value);
  for (unsigned i = 0; i < sources.size(); ++i) {
    Operation *op = sources[i].getDefiningOp();
    if (!op || isa<PackOp, CollectiveOpInterface, WaitOp>(op) ||
        !isa_and_nonnull<DDPDialect>(op->getDialect()))
      return true;
    if (isa<AddOp>(op))
      sources.insert_range(op->getOperands());
    else if (isa<CastOp, ResizeOp, ScaleOp>(op))
      sources.insert(op->getOperand(0));
  }
  return false;
}

/// Returns the size in bytes of the whole array that a collective handles.
static int64_t getBytes(CollectiveOpInterface op) {
  return getWholeSize(op) *
         (getElementTypeOf(op.getInput().getType()).getIntOrFloatBitWidth() /
          8);
}

/// True if a collective belongs to the program or handles the bucket itself;
/// false for the small messages that a hook computes.
static bool isAboutWhole(CollectiveOpInterface op) {
  bool isOfHook =
      op.getKind() == CollectiveKind::AllReduce || op.getBucketNameAttr();
  return !isOfHook || isBucketItself(op.getInput());
}

/// True if `op` takes almost no time: it moves no data, or computes with
/// scalars.
static bool isCheap(Operation *op) {
  if (isa<AllReduceStartOp, ExchangeStartOp, PackOp, UnpackOp, SplitOp,
          ExtractOp, LoadOp, StoreOp, CountCompressionOp, tensor::EmptyOp,
          tensor::ExtractSliceOp>(op) ||
      op->hasTrait<OpTrait::ConstantLike>())
    return true;
  auto isArray = [](Type type) { return isa<ShapedType, BucketType>(type); };
  return op->getNumRegions() == 0 && isMemoryEffectFree(op) &&
         llvm::none_of(op->getOperandTypes(), isArray) &&
         llvm::none_of(op->getResultTypes(), isArray);
}

namespace {
/// An operation that has to wait for a collective in flight or for other
/// waiting operations. A collective in flight is also pending until it is
/// awaited.
struct Pending {
  Operation *op = nullptr;
  /// Its position in the program.
  unsigned position = 0;
  unsigned numBlockers = 0;
  bool isDone = false;
  SmallVector<Pending *> dependents;
};

struct InPosition {
  bool operator()(const Pending *a, const Pending *b) const {
    return a->position > b->position;
  }
};

/// An entry of the new order. A collective that is split has two.
struct Step {
  enum Kind { Whole, Start, Wait } kind;
  Operation *op;
};

/// A collective in flight, and its index in the new order.
struct Flight {
  Pending *pending;
  size_t step;
  /// The value of `Scheduler::work` at its start.
  size_t work;
};

/// Statistics of a block's new order.
struct Statistics {
  unsigned started = 0;
  size_t mostInFlight = 0;
  int64_t mostBytes = 0;
};

/// Schedules the operations of one block so that at most `depth` collectives
/// are in flight. Operations keep program order, except that users of a
/// collective in flight are delayed until it has been awaited, and that the
/// oldest collective is awaited when another one has to start. Conditional
/// starts are awaited in their branches. They need no memory besides their
/// operand's, so their number is not limited.
///
/// An all-reduce starts after the users of the collective that was awaited for
/// it. An exchange is often needed by everything that follows (the next layer's
/// parameters) and otherwise by nothing for a long time. It starts at once, in
/// order of readiness, so that delayed operations overlap with it.
class Scheduler {
public:
  Scheduler(Block &block, const TensorsInMemory &inMemory, size_t depth,
            bool interleave, Statistics &statistics)
      : block(block), inMemory(inMemory), depth(depth), interleave(interleave),
        statistics(statistics) {}

  void run();

private:
  /// True if `op` begins a collective that can be in flight.
  bool isLaunched(Operation *op) const {
    if (CollectiveOpInterface collective = getSplittable(op))
      return interleave || isAboutWhole(collective);
    return bool(getConditionalStart(op));
  }
  /// Returns the unscheduled operations that `op` has to follow.
  llvm::SetVector<Pending *> findBlockers(Operation *op);
  Pending *putOff(Operation *op);
  void registerPending(Pending *pending);
  void put(Operation *op);
  void count(Operation *start, int64_t number);
  void launch(Pending *pending);
  void launchHeld();
  void awaitOldest();
  void drain();
  void finish(Pending *pending);
  void rewrite();

  static void dropDone(SmallVectorImpl<Pending *> &list) {
    llvm::erase_if(list, [](Pending *pending) { return pending->isDone; });
  }

  Block &block;
  const TensorsInMemory &inMemory;
  size_t depth;
  bool interleave;
  Statistics &statistics;

  SmallVector<Step> order;
  /// The number of scheduled operations that take time.
  size_t work = 0;
  /// Collectives to await here. For conditional starts this releases the branch
  /// that contains their waits.
  std::deque<Flight> inFlight;
  /// Exchanges that may start as soon as the depth allows, in order.
  std::deque<Pending *> held;
  /// Collectives in flight, including those awaited in later branches.
  size_t numInFlight = 0;
  int64_t bytesInFlight = 0;
  /// The conditional starts in flight, by the operation with the branches.
  llvm::DenseMap<Operation *, SmallVector<Operation *, 1>> branchesOf;
  std::deque<Pending> storage;
  unsigned position = 0;
  /// Delayed operations that nothing blocks any more, in program order.
  std::priority_queue<Pending *, SmallVector<Pending *>, InPosition> ready;

  // Delayed operations and collectives in flight, by the values they compute,
  // the values they read, and their side effects.
  llvm::DenseMap<Value, Pending *> producers;
  llvm::DenseMap<Value, SmallVector<Pending *, 2>> readers;
  struct Touched {
    Pending *writer = nullptr;
    SmallVector<Pending *, 2> readers;
  };
  llvm::DenseMap<const void *, Touched> touched;
  SmallVector<Pending *> withEffects;
  Pending *barrier = nullptr;
};
} // namespace

llvm::SetVector<Pending *> Scheduler::findBlockers(Operation *op) {
  llvm::SetVector<Pending *> blockers;
  auto add = [&](Pending *pending) {
    if (pending && !pending->isDone)
      blockers.insert(pending);
  };
  auto addAll = [&](SmallVectorImpl<Pending *> &list) {
    dropDone(list);
    blockers.insert_range(list);
  };
  if (producers.empty())
    return blockers;
  forEachUse(op, [&](Value value, bool isOverwritten) {
    add(producers.lookup(value));
    if (!isOverwritten || isWithoutContents(value))
      return;
    if (auto found = readers.find(getWhole(value)); found != readers.end())
      addAll(found->second);
  });
  Effects effects = getEffects(op, inMemory);
  if (effects.isNone())
    return blockers;
  add(barrier);
  if (effects.isUnknown)
    addAll(withEffects);
  for (Access access : effects.accesses) {
    auto found = touched.find(access.what);
    if (found == touched.end())
      continue;
    add(found->second.writer);
    if (access.isWrite)
      addAll(found->second.readers);
  }
  return blockers;
}

/// Makes `pending` visible to later operations. It hides the operations it
/// follows, since later ones follow it.
void Scheduler::registerPending(Pending *pending) {
  for (Value result : pending->op->getResults())
    producers[result] = pending;
  forEachUse(pending->op, [&](Value value, bool isOverwritten) {
    if (isWithoutContents(value))
      return;
    SmallVectorImpl<Pending *> &list = readers[getWhole(value)];
    if (isOverwritten)
      list.clear();
    list.push_back(pending);
  });
  Effects effects = getEffects(pending->op, inMemory);
  if (effects.isNone())
    return;
  if (effects.isUnknown) {
    barrier = pending;
    withEffects.clear();
  }
  withEffects.push_back(pending);
  for (Access access : effects.accesses) {
    Touched &state = touched[access.what];
    if (access.isWrite) {
      state.writer = pending;
      state.readers.clear();
    } else {
      state.readers.push_back(pending);
    }
  }
}

Pending *Scheduler::putOff(Operation *op) {
  Pending pending;
  pending.op = op;
  pending.position = position;
  storage.push_back(std::move(pending));
  registerPending(&storage.back());
  return &storage.back();
}

/// Adds `number` (1 or -1) collectives like `start` to the statistics.
void Scheduler::count(Operation *start, int64_t number) {
  numInFlight += number;
  bytesInFlight += number * getBytes(cast<CollectiveOpInterface>(start));
  statistics.mostInFlight = std::max(statistics.mostInFlight, numInFlight);
  statistics.mostBytes = std::max(statistics.mostBytes, bytesInFlight);
}

void Scheduler::put(Operation *op) {
  order.push_back({Step::Whole, op});
  for (Operation *start : branchesOf.lookup(op))
    count(start, -1);
  if (!isCheap(op))
    ++work;
}

/// Releases operations that waited only for `pending`.
void Scheduler::finish(Pending *pending) {
  pending->isDone = true;
  for (Pending *dependent : pending->dependents)
    if (--dependent->numBlockers == 0)
      ready.push(dependent);
}

void Scheduler::launch(Pending *pending) {
  while (inFlight.size() >= depth)
    awaitOldest();
  inFlight.push_back({pending, order.size(), work});
  order.push_back({Step::Whole, pending->op});
  count(pending->op, 1);
  if (AllReduceStartOp start = getConditionalStart(pending->op))
    branchesOf[start.getEnd()].push_back(start);
}

/// Ends the oldest collective. If no work was scheduled since its start, it
/// stays whole, since splitting gains nothing.
void Scheduler::awaitOldest() {
  Flight flight = inFlight.front();
  inFlight.pop_front();
  Operation *op = flight.pending->op;
  if (getConditionalStart(op)) {
    // Its waits are in the branches.
    ++statistics.started;
  } else {
    count(op, -1);
    if (work != flight.work) {
      order[flight.step].kind = Step::Start;
      order.push_back({Step::Wait, op});
    }
  }
  finish(flight.pending);
}

void Scheduler::launchHeld() {
  while (!held.empty() && inFlight.size() < depth) {
    launch(held.front());
    held.pop_front();
  }
}

/// Schedules everything that is not blocked, in program order.
void Scheduler::drain() {
  launchHeld();
  while (!ready.empty()) {
    Pending *pending = ready.top();
    ready.pop();
    if (isLaunched(pending->op) && isExchange(pending->op)) {
      held.push_back(pending);
      launchHeld();
    } else if (isLaunched(pending->op)) {
      launch(pending);
    } else {
      put(pending->op);
      finish(pending);
    }
  }
}

void Scheduler::run() {
  for (Operation &op : block.without_terminator()) {
    ++position;
    llvm::SetVector<Pending *> blockers = findBlockers(&op);
    if (!blockers.empty()) {
      Pending *pending = putOff(&op);
      pending->numBlockers = blockers.size();
      for (Pending *blocker : blockers)
        blocker->dependents.push_back(pending);
    } else if (isLaunched(&op) && isExchange(&op)) {
      held.push_back(putOff(&op));
      if (inFlight.size() >= depth)
        awaitOldest();
      drain();
    } else if (isLaunched(&op)) {
      while (inFlight.size() >= depth) {
        awaitOldest();
        drain();
      }
      launch(putOff(&op));
    } else {
      put(&op);
    }
  }
  while (!inFlight.empty()) {
    awaitOldest();
    drain();
  }
  rewrite();
}

void Scheduler::rewrite() {
  OpBuilder builder(block.getTerminator());
  llvm::DenseMap<Operation *, Operation *> starts;
  for (Step step : order) {
    if (step.kind == Step::Whole) {
      step.op->moveBefore(block.getTerminator());
      continue;
    }
    Operation *op = step.op;
    if (step.kind == Step::Start) {
      starts[op] = createStart(builder, cast<CollectiveOpInterface>(op));
      ++statistics.started;
      continue;
    }
    auto wait = WaitOp::create(builder, op->getLoc(), starts[op]->getResult(0));
    op->replaceAllUsesWith(wait);
    op->erase();
  }
}

namespace {
struct OverlapPass : public ddp::impl::DDPOverlapPassBase<OverlapPass> {
  using DDPOverlapPassBase::DDPOverlapPassBase;

  void runOnOperation() override {
    if (depth == 0) {
      emitError(getOperation()->getLoc())
          << "expected a depth of at least 1, but got 0";
      return signalPassFailure();
    }
    walkProgram(getOperation(), [](scf::IfOp choice) {
      hoistFromBranch(choice, [](Operation *op) { return !isCheap(op); });
    });
    llvm::SetVector<Block *> blocks;
    walkProgram(getOperation(), [&](Operation *op) {
      Block *block = op->getBlock();
      if ((getSplittable(op) || getConditionalStart(op)) &&
          block->mightHaveTerminator())
        blocks.insert(block);
    });
    TensorsInMemory inMemory(getOperation());
    for (Block *block : blocks) {
      hoistCollectives(*block, inMemory);
      Statistics statistics;
      Scheduler(*block, inMemory, depth, interleave, statistics).run();
      if (statistics.started == 0)
        continue;
      remark::passed(block->getParentOp()->getLoc(),
                     remarkOf("Overlap", "ddp-overlap"))
          << "collectives overlap with computation"
          << remark::metric("started", statistics.started)
          << remark::metric("in-flight", statistics.mostInFlight)
          << remark::metric("in-flight-bytes", statistics.mostBytes);
    }
  }
};
} // namespace
