//===- Overlap.cpp ---------------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-overlap: splits collectives into start and wait, and moves operations
// between them that can be computed meanwhile.
//
//===----------------------------------------------------------------------===//

#include "../Analysis/Dependences.h"
#include "../Analysis/ProgramWalk.h"
#include "Utils/HoistCollectives.h"
#include "Utils/HoistFromBranches.h"
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

#include "mlir/IR/Remarks.h"
#include <deque>
#include <queue>

namespace mlir::ddp {
#define GEN_PASS_DEF_DDPOVERLAPPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h.inc"
} // namespace mlir::ddp

using namespace mlir;
using namespace mlir::ddp;

/// A collective that can be split: in one piece, on values, and with its place
/// still open. What is dealt to the ranks of a node is copied before and
/// behind.
static CollectiveOpInterface getSplittable(Operation *op) {
  return isWholeOnValues(op) && !getDeal(op) ? cast<CollectiveOpInterface>(op)
                                             : CollectiveOpInterface();
}

/// Whether `op` is a collective other than an all-reduce.
static bool isExchange(Operation *op) {
  auto collective = dyn_cast<CollectiveOpInterface>(op);
  return collective && collective.getKind() != CollectiveKind::AllReduce;
}

/// The start of an all-reduce in a branch, which ends where the branch begins.
static AllReduceStartOp getConditionalStart(Operation *op) {
  auto start = dyn_cast<AllReduceStartOp>(op);
  return start && start.getCondition() ? start : AllReduceStartOp();
}

/// Whether `value` is what was packed, at most cast, divided, reduced or added
/// to an error of earlier steps since: not what a hook has made of it.
static bool isBucketItself(Value value) {
  // Each value once: a chain of sums has more ways through it than anyone could
  // follow.
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

/// Bytes of the whole array that a collective is about.
static int64_t getBytes(CollectiveOpInterface op) {
  return getWholeSize(op) *
         (getElementTypeOf(op.getInput().getType()).getIntOrFloatBitWidth() /
          8);
}

/// Whether a collective is the program's own, or is about the bucket itself:
/// none of the small messages that a hook makes of it.
static bool isAboutWhole(CollectiveOpInterface op) {
  bool isOfHook =
      op.getKind() == CollectiveKind::AllReduce || op.getBucketNameAttr();
  return !isOfHook || isBucketItself(op.getInput());
}

/// Whether `op` takes next to no time: what is only said, or computed with
/// single numbers.
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
/// An operation that has to wait: for a collective in flight, or for others
/// that have to wait. A collective in flight is one as well, until it is
/// awaited.
struct Pending {
  Operation *op = nullptr;
  /// Its place in the program.
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

/// A place in the new order. A collective that is split has two.
struct Step {
  enum Kind { Whole, Start, Wait } kind;
  Operation *op;
};

/// A collective in flight, and where in the new order it was started.
struct Flight {
  Pending *pending;
  size_t step;
  /// The work that had been put in order by then.
  size_t work;
};

/// What a block's new order comes to.
struct Statistics {
  unsigned started = 0;
  size_t mostInFlight = 0;
  int64_t mostBytes = 0;
};

/// Puts the operations of one block into an order in which at most `depth`
/// collectives are in flight: in program order, but what needs the result of
/// one in flight is put off until that has been awaited, and the oldest one is
/// awaited where another is to be started. Conditional starts, which take no
/// memory but their operand's, are awaited in their branches, wherever those
/// stand: there is no limit to them.
///
/// An all-reduce comes behind what needed the one that makes room for it. An
/// exchange is often needed by all that follows (the next layer's parameters),
/// and needed by nothing for long otherwise: it takes the room at once, so that
/// what was put off runs beside it. Several that are ready take turns.
class Scheduler {
public:
  Scheduler(Block &block, const TensorsInMemory &inMemory, size_t depth,
            bool interleave, Statistics &statistics)
      : block(block), inMemory(inMemory), depth(depth), interleave(interleave),
        statistics(statistics) {}

  void run();

private:
  /// Whether `op` begins a collective that can be in flight.
  bool isLaunched(Operation *op) const {
    if (CollectiveOpInterface collective = getSplittable(op))
      return interleave || isAboutWhole(collective);
    return bool(getConditionalStart(op));
  }
  /// The operations that `op` has to come after and that are not in order yet.
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
  /// Operations in it that take time.
  size_t work = 0;
  /// What is to be awaited here: of conditional starts, what keeps the branch
  /// with their waits back.
  std::deque<Flight> inFlight;
  /// Exchanges that may start as soon as there is room, in turn.
  std::deque<Pending *> held;
  /// What is in flight, up to the branches with the waits.
  size_t numInFlight = 0;
  int64_t bytesInFlight = 0;
  /// The conditional starts in flight, by the operation with the branches.
  llvm::DenseMap<Operation *, SmallVector<Operation *, 1>> branchesOf;
  std::deque<Pending> storage;
  unsigned position = 0;
  /// Put-off operations that nothing keeps any more, by place in the program.
  std::priority_queue<Pending *, SmallVector<Pending *>, InPosition> ready;

  // The operations that are delayed or in flight: by the values that they
  // compute, by the values that they read, and by their side effects.
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

/// Lets later operations find it. What it comes after itself they need not find
/// any more: they come after it.
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

/// Books that `number` more, 1 or -1, of collectives like `start` are in
/// flight.
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

/// What waited for `pending` only may go on.
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

/// Ends the oldest collective. If no time has passed since it was started, it
/// stays in one piece: there is nothing to gain.
void Scheduler::awaitOldest() {
  Flight flight = inFlight.front();
  inFlight.pop_front();
  Operation *op = flight.pending->op;
  if (getConditionalStart(op)) {
    // Its waits come with the branches.
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

/// Puts in order what nothing keeps any more, first of all what came first.
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

/// Lets the block have the new order.
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
      remark::passed(
          block->getParentOp()->getLoc(),
          remark::RemarkOpts::name("Overlap").category("ddp-overlap"))
          << "collectives run beside the program"
          << remark::metric("started", statistics.started)
          << remark::metric("in-flight", statistics.mostInFlight)
          << remark::metric("in-flight-bytes", statistics.mostBytes);
    }
  }
};
} // namespace
