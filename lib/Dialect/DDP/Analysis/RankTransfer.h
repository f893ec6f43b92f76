// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Derives facts about an operation's results from facts about its operands. The
// interfaces of an operation that is not listed here decide; without interfaces
// its results may differ on every rank.

#pragma once

#include "RankRegions.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

#include <functional>

namespace mlir::ddp {

/// The transfer functions. Invariant: an operation that was followed has a fact
/// for each result, and what is recorded holds for each time it was followed.
class RankTransfer {
public:
  using Follow = std::function<void(Operation *, const RankControl &)>;

  /// `follow` follows an operation in the body of another.
  RankTransfer(RankGroups &groups, RankFacts &facts, RankRegions &regions,
               Follow follow)
      : groups(groups), facts(facts), regions(regions),
        follow(std::move(follow)) {}

  /// Follows an operation without regions, or whose body computes scalars.
  void apply(Operation *op, const RankControl &control);

  /// Follows an operation of which only the interfaces are known.
  void applyEffects(Operation *op, const RankControl &control);

  /// Records which ranks reach `op`; `bit` is the group of a collective, if
  /// any.
  void recordReach(Operation *op, const RankControl &control, RankMask bit);

  /// The ranks that reach a collective, a call or a store.
  struct Reach {
    RankMask mask = kAllRanks;
    /// The operation that keeps some ranks of a group from reaching it.
    Operation *cause = nullptr;
  };
  llvm::DenseMap<Operation *, Reach> reached;
  /// False if `reached`, the states and the reduced sources are kept as they
  /// are.
  bool isRecording = true;

  /// Values that are unpacked, and values that are stored in states.
  llvm::MapVector<Operation *, RankMask> unpacked, stored;
  /// Collectives that reduce the result of a collective of their bucket.
  llvm::MapVector<Operation *, bool> repeated;
  /// The sources that a reduction reduces, by reduction and by the call that
  /// led to it.
  llvm::MapVector<std::pair<Operation *, Operation *>, unsigned> reducedSources;

private:
  // These return true if they have followed the operation.
  bool applyDDP(Operation *op, const RankControl &control);
  bool applyTensor(Operation *op);
  bool applyArithmetic(Operation *op, const RankControl &control);
  template <typename OpTy>
  bool reconstruct(OpTy op, const RankControl &control);
  bool set(ValueRange values, const RankFact &fact) {
    for (Value value : values)
      facts[value] = fact;
    return true;
  }

  void applyDestinationStyle(DestinationStyleOpInterface op,
                             const RankControl &control);
  RankFact reduce(Operation *op, Value input, FlatSymbolRefAttr group,
                  StringAttr bucket, const RankControl &control);
  RankFact allReduce(CollectiveOpInterface op, const RankControl &control);
  RankFact exchange(CollectiveOpInterface op, const RankControl &control);
  void addUsedAbove(RankInputs &inputs, Operation *op);

  RankGroups &groups;
  RankFacts &facts;
  RankRegions &regions;
  Follow follow;
};

/// Returns the conditional start right after `choice`, on its condition and in
/// memory or of a tensor; null if there is none.
FlatAllReduceStartOp findStartAfter(scf::IfOp choice);

} // namespace mlir::ddp
