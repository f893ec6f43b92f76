// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-verify-order: checks what the analysis has found about the ranks that run
// each collective, buckets, states and memory in flight. Between passes it also
// compares the order of collectives.

#include "../Analysis/CollectiveTrace.h"
#include "../Analysis/RankAnalysis.h"
#include "ddphook/Dialect/DDP/IR/RuntimeCalls.h"

#define GEN_PASS_DEF_DDPVERIFYORDERPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
class OrderVerifier {
public:
  OrderVerifier(ModuleOp module, const CollectiveTrace *before)
      : module(module), before(before), analysis(module) {
    for (auto info : module.getOps<BucketInfoOp>())
      infos[info.getBucketNameAttr()] = info;
  }

  LogicalResult verify();

private:
  LogicalResult checkReach(Operation *op, FlatSymbolRefAttr group);
  LogicalResult checkGroup(Operation *op, StringAttr bucket,
                           FlatSymbolRefAttr group);
  LogicalResult checkBuckets();
  LogicalResult checkLoad(LoadOp load);
  LogicalResult checkStates();
  LogicalResult checkFlight();
  LogicalResult checkTicket(LLVM::CallOp start);

  ModuleOp module;
  /// The trace before the last pass, or null if unknown.
  const CollectiveTrace *before;
  RankAnalysis analysis;
  llvm::MapVector<StringAttr, BucketInfoOp> infos;
  llvm::DenseMap<StringAttr, SmallVector<StoreOp>> stores;
  /// Buckets that have a collective.
  llvm::DenseSet<StringAttr> reduced;
};
} // namespace

LogicalResult OrderVerifier::checkReach(Operation *op, FlatSymbolRefAttr name) {
  ProcessGroupOp group = analysis.groups.lookup(op, name);
  const RankTransfer::Reach *reach = analysis.getReach(op);
  if (!group || !reach || RankGroups::isTrivial(group) ||
      (reach->mask & analysis.groups.getBit(group)))
    return success();
  InFlightDiagnostic diagnostic =
      op->emitOpError()
      << "expected all ranks of " << name
      << " to execute this operation equally often, but they may not";
  if (reach->cause)
    diagnostic.attachNote(reach->cause->getLoc())
        << "this determines how often it runs";
  return diagnostic;
}

/// True if `info`'s bucket may be reduced over `group`: the recorded group is
/// `group` or an ancestor of it, or the hook names one of these.
static bool mayUse(RankGroups &groups, BucketInfoOp info,
                   ProcessGroupOp group) {
  ProcessGroupOp recorded = groups.lookup(info, info.getGroupAttr());
  // The chain of parents ends, unless the module contains a cycle.
  for (unsigned i = 0; group && i < 64; ++i) {
    bool isNamed = false;
    info.getHook().walk([&](FlatSymbolRefAttr name) {
      isNamed |= groups.lookup(info, name) == group;
    });
    if (group == recorded || isNamed)
      return true;
    FlatSymbolRefAttr parent = group.getParentAttr();
    group = parent ? groups.lookup(group, parent) : ProcessGroupOp();
  }
  return false;
}

LogicalResult OrderVerifier::checkGroup(Operation *op, StringAttr bucket,
                                        FlatSymbolRefAttr name) {
  if (infos.empty() || !bucket)
    return success();
  reduced.insert(bucket);
  BucketInfoOp info = infos.lookup(bucket);
  if (!info)
    return op->emitOpError() << "expected bucket " << bucket
                             << " to be recorded by a 'ddp.bucket_info'";
  ProcessGroupOp group = analysis.groups.lookup(op, name);
  if (!group || mayUse(analysis.groups, info, group))
    return success();
  return (op->emitOpError()
          << "expected bucket " << bucket << " to be reduced over "
          << info.getGroupAttr() << ", but got " << name)
             .attachNote(info.getLoc())
         << "the bucket's record";
}

/// Checks that each bucket that sends data has a collective and none reduces a
/// result again. If all hooks reduce in every step, no part may be left.
LogicalResult OrderVerifier::checkBuckets() {
  bool ok = true;
  bool isAlwaysReduced = !infos.empty();
  for (auto [name, info] : infos) {
    isAlwaysReduced &=
        cast<HookAttrInterface>(info.getHook()).reducesEveryStep();
    if (info.getWireBytes() != 0 && !reduced.contains(name)) {
      info.emitOpError() << "expected a collective that reduces bucket "
                         << name;
      ok = false;
    }
  }
  // The results of an all-to-all differ between ranks by design.
  module.walk([&](CollectiveOpInterface op) {
    isAlwaysReduced &= op.getKind() != CollectiveKind::AllToAll;
  });
  if (isAlwaysReduced)
    for (auto [op, mask] : analysis.transfer.unpacked)
      if (mask == 0) {
        op->emitOpError()
            << "expected a reduced bucket, but part of it was not reduced";
        ok = false;
      }
  for (auto [op, isRepeated] : analysis.transfer.repeated)
    if (isRepeated) {
      op->emitOpError() << "expected the bucket to be reduced once, but the "
                           "operand is already reduced";
      ok = false;
    }
  return success(ok);
}

/// True if `later` follows `op`, on the same path or in a branch there.
static bool comesAfter(Operation *op, Operation *later) {
  for (Operation *around = op; around && around->getBlock();
       around = around->getParentOp()) {
    if (Operation *inBlock = around->getBlock()->findAncestorOpInBlock(*later))
      return around != inBlock && around->isBeforeInBlock(inBlock);
    // Blocks of one region: assume that some path leads from `op` to `later`.
    if (around->getParentRegion()->isAncestor(later->getParentRegion()))
      return true;
  }
  return false;
}

LogicalResult OrderVerifier::checkLoad(LoadOp load) {
  auto state =
      SymbolTable::lookupNearestSymbolFrom<StateOp>(load, load.getStateAttr());
  if (!state || state.getInit() == StateInit::MT19937 ||
      getNumElementsOf(state.getBufferType()) == 0)
    return success();
  if (llvm::any_of(stores.lookup(state.getSymNameAttr()),
                   [&](StoreOp store) { return comesAfter(load, store); }))
    return success();
  return (load.emitOpError() << "expected state " << load.getStateAttr()
                             << " to be stored again after this")
             .attachNote(state.getLoc())
         << "the state is declared here";
}

LogicalResult OrderVerifier::checkStates() {
  bool ok = true;
  for (auto [op, mask] : analysis.transfer.stored)
    stores[cast<StoreOp>(op).getStateAttr().getAttr()].push_back(
        cast<StoreOp>(op));
  module.walk([&](LoadOp load) { ok &= succeeded(checkLoad(load)); });
  auto isReplicated = [&](Operation *op, FlatSymbolRefAttr name) {
    auto state = SymbolTable::lookupNearestSymbolFrom<StateOp>(op, name);
    return state && state.getPlacement() == StatePlacement::Replicated;
  };
  for (auto [op, mask] : analysis.transfer.stored) {
    FlatSymbolRefAttr state = cast<StoreOp>(op).getStateAttr();
    if (mask != 0 || !isReplicated(op, state))
      continue;
    InFlightDiagnostic diagnostic =
        op->emitOpError() << "expected state " << state
                          << ", which is replicated, to get the same value on "
                          << "all ranks, but it may differ";
    const RankTransfer::Reach *reach = analysis.getReach(op);
    if (reach && reach->mask == 0 && reach->cause)
      diagnostic.attachNote(reach->cause->getLoc())
          << "this decides whether the state is stored";
    ok = false;
  }
  for (auto [where, mask] : analysis.leftInStates) {
    auto state = FlatSymbolRefAttr::get(where.second);
    if (mask != 0 || !isReplicated(where.first, state))
      continue;
    where.first->emitOpError()
        << "expected state " << state
        << ", which is replicated, to have the same value on all ranks "
        << "afterwards, but it may differ";
    ok = false;
  }
  // On memrefs there are no loads and stores: a state that is used must be
  // written.
  llvm::DenseSet<StringAttr> written;
  for (auto [where, mask] : analysis.leftInStates)
    written.insert(where.second);
  module.walk([&](StateBufferOp buffer) {
    auto state = SymbolTable::lookupNearestSymbolFrom<StateOp>(
        buffer, buffer.getStateAttr());
    if (!state || state.getInit() == StateInit::MT19937 || buffer.use_empty() ||
        getNumElementsOf(state.getBufferType()) == 0 ||
        (before && before->unchangedStates.contains(state.getSymName())) ||
        !written.insert(state.getSymNameAttr()).second)
      return;
    InFlightDiagnostic diagnostic =
        buffer.emitOpError() << "expected state " << buffer.getStateAttr()
                             << " to be written by some function";
    if (!before)
      diagnostic.attachNote(state.getLoc())
          << "if it is only stored unchanged, run the pass before "
             "bufferization, which hides that";
    ok = false;
  });
  return success(ok);
}

LogicalResult OrderVerifier::checkFlight() {
  for (auto [op, start] : analysis.regions.conflicts)
    (op->emitOpError()
     << "expected no access to memory that a collective in flight uses")
            .attachNote(start->getLoc())
        << "the collective is started here";
  return success(analysis.regions.conflicts.empty());
}

/// Checks that the ticket, which alone connects start and wait, has one wait.
LogicalResult OrderVerifier::checkTicket(LLVM::CallOp start) {
  Value ticket = start.getResult();
  Block *block = start->getBlock();
  Value condition;
  // If a then branch has only the start, a later `scf.if` has its wait.
  auto choice = dyn_cast<scf::IfOp>(start->getParentOp());
  if (choice && ticket.hasOneUse() &&
      *ticket.user_begin() == block->getTerminator() &&
      start->getParentRegion() == &choice.getThenRegion()) {
    ticket = choice.getResult(ticket.use_begin()->getOperandNumber());
    block = choice->getBlock();
    condition = choice.getCondition();
  }
  unsigned numWaits = 0;
  for (Operation *user : ticket.getUsers()) {
    auto wait = dyn_cast<LLVM::CallOp>(user);
    if (!wait || wait.getCallee() != rt::wait.name)
      continue;
    auto around = dyn_cast<scf::IfOp>(user->getParentOp());
    numWaits += condition
                    ? around && around.getCondition() == condition &&
                          around->getBlock() == block &&
                          user->getParentRegion() == &around.getThenRegion()
                    : user->getBlock() == block;
  }
  if (numWaits == 1)
    return success();
  return start.emitOpError()
         << "expected the collective to be awaited exactly "
         << "once in its block, but got " << numWaits << " waits";
}

LogicalResult OrderVerifier::verify() {
  analysis.run();
  bool ok = succeeded(analysis.reportUnfollowed());
  module.walk([&](Operation *op) {
    if (auto collective = dyn_cast<CollectiveOpInterface>(op)) {
      ok &= succeeded(checkReach(op, collective.getGroupAttr()));
      ok &= succeeded(checkGroup(op, collective.getBucketNameAttr(),
                                 collective.getGroupAttr()));
    } else if (auto average = dyn_cast<AverageOp>(op))
      ok &= succeeded(checkReach(op, average.getGroupAttr()));
    else if (auto call = dyn_cast<LLVM::CallOp>(op);
             call && call.getCallee() == rt::collective_start.name)
      ok &= succeeded(checkTicket(call));
  });
  ok &= succeeded(checkBuckets());
  ok &= succeeded(checkStates());
  ok &= succeeded(checkFlight());
  return success(ok);
}

namespace {
struct VerifyOrderPass
    : public ddp::impl::DDPVerifyOrderPassBase<VerifyOrderPass> {
  VerifyOrderPass() = default;
  VerifyOrderPass(CollectiveHistory history, StringRef pass,
                  OrderAcrossPass kept)
      : history(std::move(history)), pass(pass), kept(kept) {}

  void runOnOperation() override {
    ModuleOp module = getOperation();
    const CollectiveTrace *before = history ? history->get() : nullptr;
    bool ok = succeeded(OrderVerifier(module, before).verify());
    if (history) {
      auto now = std::make_unique<CollectiveTrace>(module);
      if (before) {
        ok &= succeeded(
            compareTraces(module.getLoc(), pass, kept, *before, *now));
        for (const auto &state : before->unchangedStates)
          now->unchangedStates.insert(state.getKey());
      }
      *history = std::move(now);
    }
    markAllAnalysesPreserved();
    if (!ok)
      signalPassFailure();
  }

  /// The trace after the previous pass; null if traces are not compared.
  CollectiveHistory history;
  std::string pass;
  OrderAcrossPass kept = OrderAcrossPass::Nothing;
};
} // namespace

CollectiveHistory mlir::ddp::createCollectiveHistory() {
  return std::make_shared<std::unique_ptr<CollectiveTrace>>();
}

std::unique_ptr<Pass>
mlir::ddp::createVerifyOrderAfterPass(CollectiveHistory history, StringRef pass,
                                      OrderAcrossPass kept) {
  return std::make_unique<VerifyOrderPass>(std::move(history), pass, kept);
}
