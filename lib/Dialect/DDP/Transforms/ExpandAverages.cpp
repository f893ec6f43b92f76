// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-expand-averages: turns the averages of a block into one collective that
// runs every few steps.

#include "../Analysis/Dependences.h"
#include "../IR/Hooks/HookState.h"
#include "Utils/Arrays.h"
#include "Utils/GradientNames.h"
#include "ddphook/Dialect/DDP/IR/Remarks.h"

#include <map>

#define GEN_PASS_DEF_DDPEXPANDAVERAGESPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
using Averages = SmallVector<AverageOp>;

/// The averages of a set and the operations that depend on them, which all have
/// to follow the collective.
using Dependents = llvm::SetVector<Operation *>;

/// Averages of one kind become one collective: group, period, warmup, and the
/// element type.
using Kind = std::tuple<StringRef, uint64_t, uint64_t, const void *>;

struct ExpandAveragesPass
    : public ddp::impl::DDPExpandAveragesPassBase<ExpandAveragesPass> {
  void runOnOperation() override {
    names = nameAverages(getOperation());
    if (names.empty())
      return markAllAnalysesPreserved();
    inMemory = TensorsInMemory(getOperation());
    std::vector<Averages> sets;
    getOperation().walk([&](Block *block) { collectSets(*block, sets); });
    for (auto [number, set] : llvm::enumerate(sets))
      if (failed(expand(set, number)))
        return signalPassFailure();
  }

  /// Appends the sets of averages of `block` that can share a collective: users
  /// of an average can move after the last one of its set.
  static void collectSets(Block &block, std::vector<Averages> &sets) {
    struct Open {
      size_t number;
      Dependents dependents;
    };
    std::map<Kind, Open> open;
    for (Operation &op : block) {
      for (auto it = open.begin(); it != open.end();) {
        Dependents &dependents = it->second.dependents;
        bool depends = dependsOn(&op, dependents);
        if (depends && mayMove(&op))
          dependents.insert(&op);
        it = depends && !mayMove(&op) ? open.erase(it) : std::next(it);
      }
      auto average = dyn_cast<AverageOp>(op);
      if (!average)
        continue;
      Type type = average.getType().getElementType();
      auto [it, isNew] =
          open.try_emplace({average.getGroup(), average.getPeriod(),
                            average.getWarmup(), type.getAsOpaquePointer()});
      if (isNew) {
        it->second.number = sets.size();
        sets.emplace_back();
      }
      sets[it->second.number].push_back(average);
      it->second.dependents.insert(&op);
    }
  }

  /// True if `op`, or an operation nested in it, uses a result of a member of
  /// the set.
  static bool dependsOn(Operation *op, const Dependents &dependents) {
    Block *block = op->getBlock();
    bool depends = false;
    op->walk([&](Operation *nested) {
      for (Value operand : nested->getOperands()) {
        Operation *source = operand.getDefiningOp();
        Operation *inBlock =
            source ? block->findAncestorOpInBlock(*source) : nullptr;
        depends |= inBlock && inBlock != op && dependents.contains(inBlock);
      }
    });
    return depends;
  }

  /// Creates the i64 state that counts the runs of `set`, set number `number`.
  /// Checkpoints identify it by the averaged tensors, because the number
  /// changes if the program gains an average.
  FailureOr<StateOp> createCounter(const Averages &set, unsigned number) {
    AverageOp first = set.front();
    OpBuilder builder(first);
    BucketReduction reduction{first.getLoc(), Reduction::Mean,
                              first.getGroupAttr(), StringAttr()};
    FailureOr<StateOp> state =
        HookState(builder, reduction)
            .createCounter("average" + Twine(number) + ".iter",
                           StateKind::Iteration);
    if (failed(state))
      return failure();
    SmallVector<Attribute> members;
    for (AverageOp op : set)
      members.push_back(names.lookup(op));
    state->setRole("average.iter");
    state->setGradientsAttr(
        builder.getArrayAttr(builder.getArrayAttr(members)));
    return state;
  }

  LogicalResult expand(Averages &set, unsigned number) {
    AverageOp first = set.front(), last = set.back();
    Location loc = first.getLoc();
    moveUsersAfter(set);
    FailureOr<StateOp> counter = createCounter(set, number);
    if (failed(counter))
      return failure();
    OpBuilder builder(last);
    auto symbol = FlatSymbolRefAttr::get(counter->getSymNameAttr());
    auto getConstant = [&](int64_t value) -> Value {
      return arith::ConstantOp::create(builder, loc,
                                       builder.getI64IntegerAttr(value));
    };
    Value run = LoadOp::create(builder, loc, builder.getI64Type(), symbol);
    StoreOp::create(builder, loc,
                    arith::AddIOp::create(builder, loc, run, getConstant(1)),
                    symbol);
    Value warmup = getConstant(first.getWarmup());
    Value since = arith::SubIOp::create(builder, loc, run, warmup);
    Value isWarm = arith::CmpIOp::create(
        builder, loc, arith::CmpIPredicate::sge, run, warmup);
    Value isDue = arith::CmpIOp::create(
        builder, loc, arith::CmpIPredicate::eq,
        arith::RemSIOp::create(builder, loc, since,
                               getConstant(first.getPeriod())),
        getConstant(0));
    Value now = arith::AndIOp::create(builder, loc, isWarm, isDue);

    SmallVector<Value> inputs;
    for (AverageOp op : set)
      inputs.push_back(op.getInput());
    TypeRange types = ValueRange(inputs).getTypes();
    auto choice = scf::IfOp::create(builder, loc, types, now,
                                    /*withElseRegion=*/true);
    builder.setInsertionPointToStart(choice.thenBlock());
    auto bucketType = BucketType::getFromTensors(
        &getContext(), first.getType().getElementType(), types);
    Value bucket = PackOp::create(builder, loc, bucketType, inputs);
    BucketReduction reduction{loc, Reduction::Mean, first.getGroupAttr(),
                              StringAttr()};
    Value mean = buildFinalAllReduce(builder, reduction, bucket);
    auto unpacked = UnpackOp::create(builder, loc, types, mean);
    // Copy back to where the parameters are: both branches leave them there.
    SmallVector<Value> averaged;
    for (auto [mean, input] : llvm::zip(unpacked.getTensors(), inputs))
      averaged.push_back(
          linalg::CopyOp::create(builder, loc, mean, input).getResult(0));
    scf::YieldOp::create(builder, loc, averaged);
    builder.setInsertionPointToStart(choice.elseBlock());
    scf::YieldOp::create(builder, loc, inputs);
    for (auto [op, result] : llvm::zip(set, choice.getResults())) {
      op.getResult().replaceAllUsesWith(result);
      op.erase();
    }
    return success();
  }

  /// True if the operation may run at another time. An allocation declares no
  /// effects, and has none that matter.
  static bool mayMove(Operation *op) {
    return isMemoryEffectFree(op) || isa<bufferization::AllocTensorOp>(op);
  }

  /// Makes `op`, a member of the set, use copies of the tensors in memory that
  /// it reads. The copies stay where `op` was. Results of other members are
  /// skipped: they are computed later, from copies.
  void copyFromMemory(Operation *op, const Dependents &dependents) {
    llvm::SmallDenseMap<Value, Value> copies;
    OpBuilder builder(op);
    op->walk([&](Operation *nested) {
      for (OpOperand &operand : nested->getOpOperands()) {
        Value value = operand.get();
        if (!isa<RankedTensorType>(value.getType()) ||
            !inMemory.contains(value) ||
            dependents.contains(value.getDefiningOp()) ||
            op->isAncestor(value.getParentRegion()->getParentOp()))
          continue;
        Value &copy = copies[value];
        if (!copy)
          copy = createCopy(builder, op->getLoc(), value);
        operand.set(copy);
      }
    });
    if (copies.empty())
      return;
    remark::missed(op->getLoc(),
                   remarkOf("AverageMemory", "ddp-expand-averages"))
        << "tensors whose memory is written before the average are copied"
        << remark::metric("copied", static_cast<int>(copies.size()));
  }

  /// Copies the tensors in memory that members of the set use if `op`, which
  /// now comes before them, may write that memory or read what they write.
  void keepMemory(Operation *op, const Dependents &dependents) {
    TensorsInMemory::Use use = inMemory.getUse(op);
    // Counting its runs does not make an average access memory.
    Effects effects = isa<AverageOp>(op) ? Effects() : getEffects(op, inMemory);
    bool mayWrite = use.writes || effects.isUnknown ||
                    llvm::any_of(effects.accesses, [](const Access &access) {
                      return access.isWrite;
                    });
    bool mayRead = mayWrite || use.reads || !effects.isNone();
    for (Operation *other : dependents) {
      TensorsInMemory::Use used = inMemory.getUse(other);
      if ((used.reads && mayWrite) || (used.writes && mayRead))
        copyFromMemory(other, dependents);
    }
  }

  /// Moves everything that uses an earlier average after the last one.
  void moveUsersAfter(Averages &set) {
    AverageOp last = set.back();
    Dependents dependents;
    SmallVector<Operation *> moved;
    for (Operation *op = set.front(); op != last; op = op->getNextNode()) {
      auto average = dyn_cast<AverageOp>(op);
      if (dependsOn(op, dependents)) {
        dependents.insert(op);
        moved.push_back(op);
      } else if (average && llvm::is_contained(set, average)) {
        dependents.insert(op);
      } else if (!inMemory.isEmpty()) {
        keepMemory(op, dependents);
      }
    }
    for (Operation *op : llvm::reverse(moved))
      op->moveAfter(last);
  }

  /// The name of the tensor that each average averages.
  llvm::DenseMap<Operation *, StringAttr> names;
  TensorsInMemory inMemory;
};
} // namespace
