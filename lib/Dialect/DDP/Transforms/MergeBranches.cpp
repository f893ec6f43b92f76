// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-merge-branches: merges the `scf.if`s of a block that contain collectives
// and have the same condition.

#include "../Analysis/Dependences.h"

#define GEN_PASS_DEF_DDPMERGEBRANCHESPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

/// True if two values are certainly equal: one value, or computed from the same
/// values in the same way. The depth covers usual conditions.
static bool isSameValue(Value a, Value b, unsigned depth = 4) {
  auto first = dyn_cast<OpResult>(a), second = dyn_cast<OpResult>(b);
  if (a == b || depth == 0 || !first || !second)
    return a == b;
  return first.getResultNumber() == second.getResultNumber() &&
         isMemoryEffectFree(first.getOwner()) &&
         OperationEquivalence::isEquivalentTo(
             first.getOwner(), second.getOwner(),
             [&](Value x, Value y) {
               return success(isSameValue(x, y, depth - 1));
             },
             /*markEquivalent=*/nullptr, OperationEquivalence::IgnoreLocations);
}

/// Returns `op` if it is an `scf.if` with else and a collective, or null.
static scf::IfOp getCandidate(Operation *op) {
  auto choice = dyn_cast<scf::IfOp>(op);
  if (!choice || choice.getElseRegion().empty())
    return {};
  bool hasCollective =
      choice.walk([](AllReduceOp) { return WalkResult::interrupt(); })
          .wasInterrupted();
  return hasCollective ? choice : scf::IfOp();
}

/// True if the branches await a start on their condition. Start and wait must
/// keep using the same value as their condition.
static bool awaitsStart(scf::IfOp choice) {
  return llvm::any_of(choice.getCondition().getUsers(), [&](Operation *user) {
    auto start = dyn_cast<AllReduceStartOp>(user);
    return start && start.getEnd() == choice;
  });
}

namespace {
/// Records the results, reads and effects of operations that move down.
class Footprint {
public:
  explicit Footprint(const TensorsInMemory &inMemory) : inMemory(inMemory) {}

  void add(Operation *op) {
    results.insert_range(op->getResults());
    forEachUse(op, [&](Value value, bool) { read.insert(getWhole(value)); });
    Effects effects = getEffects(op, inMemory);
    hasEffects |= !effects.isNone();
    hasUnknown |= effects.isUnknown;
    for (Access access : effects.accesses)
      touched[access.what] |= access.isWrite;
  }

  /// True if `op` uses one of their results.
  bool isUsedBy(Operation *op) const {
    bool found = false;
    forEachUse(op,
               [&](Value value, bool) { found |= results.contains(value); });
    return found;
  }

  /// True if they cannot move past `op`.
  bool isKeptBy(Operation *op) const {
    bool found = isUsedBy(op);
    forEachUse(op, [&](Value value, bool isOverwritten) {
      found |= isOverwritten && !isWithoutContents(value) &&
               read.contains(getWhole(value));
    });
    Effects effects = getEffects(op, inMemory);
    found |= hasUnknown && !effects.isNone();
    found |= hasEffects && effects.isUnknown;
    for (Access access : effects.accesses)
      if (auto it = touched.find(access.what); it != touched.end())
        found |= it->second || access.isWrite;
    return found;
  }

private:
  const TensorsInMemory &inMemory;
  llvm::DenseSet<Value> results, read;
  llvm::DenseMap<const void *, bool> touched; // True if written.
  bool hasEffects = false, hasUnknown = false;
};

/// Candidates to merge, and the operations that depend on one of them before
/// the last one and therefore must move after the merged `scf.if`.
class MergeSet {
public:
  MergeSet(scf::IfOp first, const TensorsInMemory &inMemory)
      : ofMembers(inMemory), ofFollowing(inMemory) {
    join(first);
  }

  /// True if a later operation has to move after the set.
  bool keeps(Operation *op) const {
    return ofMembers.isKeptBy(op) || ofFollowing.isKeptBy(op);
  }
  /// Members keep their order, so their effects do not conflict.
  bool canJoin(scf::IfOp op, size_t limit) const {
    Value condition = scf::IfOp(members.front()).getCondition();
    return members.size() < limit &&
           (op.getCondition() == condition || !awaitsStart(op)) &&
           isSameValue(condition, op.getCondition()) &&
           !ofMembers.isUsedBy(op) && !ofFollowing.isKeptBy(op);
  }
  void join(scf::IfOp op) {
    members.push_back(op);
    numBetween = following.size();
    ofMembers.add(op);
  }
  void addFollowing(Operation *op) {
    following.push_back(op);
    ofFollowing.add(op);
  }
  /// Returns true if there was anything to merge.
  bool merge();

private:
  SmallVector<scf::IfOp> members;
  SmallVector<Operation *> following;
  /// The number of those before the last member.
  size_t numBetween = 0;
  Footprint ofMembers, ofFollowing;
};
} // namespace

/// Appends a branch's operations to those of other branches, and its yielded
/// values to `yields`.
static void append(Block *from, Block *to, SmallVectorImpl<Value> &yields) {
  llvm::append_range(yields, from->getTerminator()->getOperands());
  from->getTerminator()->erase();
  to->getOperations().splice(to->end(), from->getOperations());
}

bool MergeSet::merge() {
  if (members.size() < 2)
    return false;
  scf::IfOp last = members.back();
  OpBuilder builder(last);
  SmallVector<Type> types;
  for (scf::IfOp member : members)
    llvm::append_range(types, member.getResultTypes());
  auto merged = scf::IfOp::create(builder, last.getLoc(), types,
                                  members.front().getCondition(),
                                  /*addThenBlock=*/true, /*addElseBlock=*/true);
  for (auto getBlock : {&scf::IfOp::thenBlock, &scf::IfOp::elseBlock}) {
    Block *block = (merged.*getBlock)();
    SmallVector<Value> yields;
    for (scf::IfOp member : members)
      append((member.*getBlock)(), block, yields);
    builder.setInsertionPointToEnd(block);
    scf::YieldOp::create(builder, last.getLoc(), yields);
  }
  unsigned number = 0;
  for (scf::IfOp member : members)
    for (Value result : member.getResults())
      result.replaceAllUsesWith(merged.getResult(number++));
  for (Operation *op :
       llvm::reverse(ArrayRef(following).take_front(numBetween)))
    op->moveAfter(merged);
  for (scf::IfOp member : members)
    member.erase();
  return true;
}

/// Collects and merges the sets of a block. Merges them only at the end, so
/// that the block does not change during collection. Returns true if any were
/// merged.
static bool mergeIn(Block &block, const TensorsInMemory &inMemory,
                    size_t limit) {
  std::vector<std::unique_ptr<MergeSet>> sets;
  for (Operation &op : block.without_terminator()) {
    scf::IfOp candidate = getCandidate(&op);
    MergeSet *open = sets.empty() ? nullptr : sets.back().get();
    if (candidate && open && open->canJoin(candidate, limit))
      open->join(candidate);
    else if (candidate)
      sets.push_back(std::make_unique<MergeSet>(candidate, inMemory));
    else if (open && open->keeps(&op))
      open->addFollowing(&op);
  }
  bool hasChanged = false;
  for (auto &set : sets)
    hasChanged |= set->merge();
  return hasChanged;
}

/// Merges in a block and then in those of its operations, so that branches in
/// merged branches meet.
static bool mergeInAll(Block &block, const TensorsInMemory &inMemory,
                       size_t limit) {
  bool hasChanged = block.mightHaveTerminator() &&
                    !block.getOps<scf::IfOp>().empty() &&
                    mergeIn(block, inMemory, limit);
  for (Operation &op : block)
    for (Region &region : op.getRegions())
      for (Block &nested : region)
        hasChanged |= mergeInAll(nested, inMemory, limit);
  return hasChanged;
}

namespace {
struct MergeBranchesPass
    : public ddp::impl::DDPMergeBranchesPassBase<MergeBranchesPass> {
  using DDPMergeBranchesPassBase::DDPMergeBranchesPassBase;

  void runOnOperation() override {
    TensorsInMemory inMemory(getOperation());
    bool hasChanged = false;
    for (Region &region : getOperation()->getRegions())
      for (Block &block : region)
        hasChanged |= mergeInAll(block, inMemory, limit);
    if (!hasChanged)
      markAllAnalysesPreserved();
  }
};
} // namespace
