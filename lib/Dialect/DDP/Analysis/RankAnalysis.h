// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Follows a module from its entries, through branches, loops and calls. For
// every value and for memory it determines within which process groups the
// contents are the same and how often they were reduced, and for every
// operation which ranks reach it. It reports no errors: ddp-verify-sync and
// ddp-verify-order do.
//
// It is an abstract interpretation in program order: the depth of recursion is
// that of nested regions and calls, never that of a chain of operations. Loops
// start with the assumption that everything is the same on all ranks, and are
// repeated until nothing changes.

#pragma once

#include "RankTransfer.h"

namespace mlir::ddp {

/// How the blocks of a region follow one another.
struct ControlFlow {
  explicit ControlFlow(Region &region);

  SmallVector<Block *> order;
  /// The terminators that decide about each block.
  llvm::DenseMap<Block *, SmallVector<Operation *, 2>> deciding;
  bool hasCycles = false;
};

/// Follows the control flow; RankTransfer follows single operations, in the
/// memory of RankRegions. Invariant: where paths meet, facts and memory are
/// joined, so that they hold for each path that was followed.
class RankAnalysis {
public:
  explicit RankAnalysis(ModuleOp module);
  RankAnalysis(const RankAnalysis &) = delete;

  /// Follows all functions that are called from outside, until the values that
  /// they leave in states no longer change.
  void run();

  /// Follows one function as if it were called from outside, for its counts;
  /// earlier findings about the ranks that reach an operation are kept.
  void runAlone(FunctionOpInterface function);

  /// Returns what `terminator` returned when its function was last followed.
  ArrayRef<RankFact> getReturned(Operation *terminator) const {
    auto it = returned.find(terminator);
    return it == returned.end() ? ArrayRef<RankFact>() : it->second;
  }
  RankFact get(Value value) const { return facts.lookup(value); }

  /// Returns null if no rank reaches the operation.
  const RankTransfer::Reach *getReach(Operation *op) const {
    auto it = transfer.reached.find(op);
    return it == transfer.reached.end() ? nullptr : &it->second;
  }

  /// Reports the calls and loops that could not be followed.
  LogicalResult reportUnfollowed() const;

  /// The contents that a function leaves in a state's memory.
  llvm::MapVector<std::pair<Operation *, StringAttr>, RankMask> leftInStates;

  RankGroups groups;
  RankFacts facts;
  RankRegions regions{facts};
  RankTransfer transfer;

private:
  void runEntry(FunctionOpInterface function);
  void visitFunction(FunctionOpInterface function, ArrayRef<RankFact> arguments,
                     const RankControl &control);
  void visitRegion(Region &region, const RankControl &control);
  void visitBlocks(Region &region, const RankControl &control);
  void visitBlock(Block &block, const RankControl &control);
  void visit(Operation *op, const RankControl &control);
  void visitChoice(Operation *op, ValueRange deciding,
                   const RankControl &control);
  void visitLoop(LoopLikeOpInterface loop, const RankControl &control);
  void visitWhile(scf::WhileOp loop, const RankControl &control);
  void visitCall(CallOpInterface call, const RankControl &control);
  void visitForall(scf::ForallOp loop);
  void visitGenerate(Operation *op);
  void visitUnknownRegions(Operation *op, const RankControl &control);
  bool holdsCollectives(Operation *op);
  const ControlFlow &getControlFlow(Region &region);
  RankMask getChoice(Operation *terminator);

  /// The memory at the point of the program that is being visited.
  RankMemory &memory = regions.memory;
  ModuleOp module;
  SymbolTableCollection symbols;
  llvm::DenseMap<Operation *, SmallVector<RankFact>> returned;

  llvm::DenseSet<Operation *> called;
  /// Calls that are being followed, the innermost last.
  SmallVector<Operation *> callStack;
  /// The results of a function that accesses no memory, for given arguments.
  struct Answer {
    RankMask mask;
    SmallVector<RankFact> arguments, results;
  };
  llvm::DenseMap<Operation *, SmallVector<Answer, 2>> answers;
  llvm::DenseMap<Operation *, bool> withoutMemory, withCollectives;
  uint64_t numVisited = 0, maxVisited = 0;

  llvm::DenseMap<Region *, std::unique_ptr<ControlFlow>> controlFlows;
  /// The groups within which all ranks that are in a region leave it by this
  /// terminator; has no entry for the only terminator of a region.
  llvm::DenseMap<Operation *, RankMask> leftBy;
  /// Calls of a function that is already being followed, and calls and loops
  /// that would take too long to follow.
  llvm::SetVector<Operation *> recursive, exhausted;
};

} // namespace mlir::ddp
