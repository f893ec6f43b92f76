//===- RankAnalysis.h - a program on all ranks at once ----------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
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
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_RANKANALYSIS_H
#define DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_RANKANALYSIS_H

#include "GradientCount.h"
#include "RankMemory.h"

#include "ddphook/Dialect/DDP/IR/DDP.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Interfaces/CallInterfaces.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include <set>

namespace mlir::ddp {

/// Returns 1 for a scalar, and the maximum if the number is unknown.
int64_t getNumElements(Type type);

/// The facts that the analysis knows about a value.
struct RankFact {
  /// The groups within whose parts all ranks have the same value.
  RankMask uniform = kAllRanks;
  GradientCount count;
  /// The memory of a memref. (`uniform` describes the address, not the
  /// contents.)
  MemoryRegion region;
  /// For the result of a bucket's collective: the bucket.
  StringAttr reducedAs;

  bool operator==(const RankFact &other) const {
    return uniform == other.uniform && count == other.count &&
           region == other.region && reducedAs == other.reducedAs;
  }
};

/// The ranks that run a piece of code: the groups within which all ranks run it
/// equally often, and the operations that decide this.
struct RankControl {
  RankMask mask = kAllRanks;
  Operation *op = nullptr;
  const RankControl *outer = nullptr;
};

/// Returns the conditional start right after `choice`, on its condition and in
/// memory or of a tensor; null if there is none.
FlatAllReduceStartOp findStartBehind(scf::IfOp choice);

class RankAnalysis {
public:
  explicit RankAnalysis(ModuleOp module);

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

  /// The ranks that reach a collective, a call or a store.
  struct Reach {
    RankMask mask = kAllRanks;
    /// The operation that keeps some ranks of a group from reaching it.
    Operation *cause = nullptr;
  };
  /// Returns null if no rank reaches the operation.
  const Reach *getReach(Operation *op) const {
    auto it = reached.find(op);
    return it == reached.end() ? nullptr : &it->second;
  }

  /// Reports the calls and loops that could not be followed.
  LogicalResult reportUnfollowed() const;

  /// Findings from which the passes derive errors.
  struct Findings {
    /// Values that are unpacked, and values that are stored in states.
    llvm::MapVector<Operation *, RankMask> unpacked, stored;
    /// The contents that a function leaves in a state's memory.
    llvm::MapVector<std::pair<Operation *, StringAttr>, RankMask> leftInStates;
    /// Collectives that reduce the result of a collective of their bucket.
    llvm::MapVector<Operation *, bool> repeated;
    /// Operations that access memory that a collective in flight uses.
    llvm::MapVector<Operation *, Operation *> conflicts;
    /// Calls of a function that is already being followed, and calls and loops
    /// that would take too long to follow.
    llvm::SetVector<Operation *> recursive, exhausted;
  } findings;

  RankGroups groups;
  SourceSets sources;

private:
  //===--------------------------------------------------------------------===//
  // Control flow (RankAnalysis.cpp)
  //===--------------------------------------------------------------------===//
  void runEntry(FunctionOpInterface function);
  void visitFunction(FunctionOpInterface function, ArrayRef<RankFact> arguments,
                     const RankControl &control);
  void visitRegion(Region &region, const RankControl &control);
  void visitBlocks(Region &region, const RankControl &control);
  void visitBlock(Block &block, const RankControl &control);
  void visit(Operation *op, const RankControl &control);
  void visitChoice(Operation *op, ValueRange deciding,
                   const RankControl &control);
  void forgetOverwritten(LoopLikeOpInterface loop);
  void visitLoop(LoopLikeOpInterface loop, const RankControl &control);
  void visitWhile(scf::WhileOp loop, const RankControl &control);
  void visitCall(CallOpInterface call, const RankControl &control);
  void renameMade(CallOpInterface call, FunctionOpInterface function);
  void visitForall(scf::ForallOp loop);
  void visitGenerate(Operation *op);
  void visitUnknownRegions(Operation *op, const RankControl &control);
  RankFact join(const RankFact &a, const RankFact &b);
  bool update(Value value, RankFact next);
  bool holdsCollectives(Operation *op);

  //===--------------------------------------------------------------------===//
  // Operations (RankTransfer.cpp)
  //===--------------------------------------------------------------------===//
  /// The facts about an operation's inputs.
  struct Inputs {
    RankMask uniform = kAllRanks;
    SmallVector<GradientCount, 4> counts;
    /// Null unless all inputs come from collectives of one bucket.
    StringAttr reducedAs;
  };
  void add(Inputs &inputs, Operation *op, Value value);
  void addUsedAbove(Inputs &inputs, Operation *op);
  RankFact combine(const Inputs &inputs, Type type);
  RankFact combineUnfollowed(const Inputs &inputs, Type type);
  void set(Value value, RankFact fact);
  RankFact createUnknown(Value value);
  RankFact createArgument(Value value, bool isReplicated);
  unsigned getSource(const void *origin);
  void transfer(Operation *op, const RankControl &control);
  bool transferDDP(Operation *op, const RankControl &control);
  bool transferTensor(Operation *op);
  void transferDestinationStyle(DestinationStyleOpInterface op,
                                const RankControl &control);
  void transferArithmetic(Operation *op, const RankControl &control);
  void transferEffects(Operation *op, const RankControl &control);
  RankFact reduce(Operation *op, Value input, FlatSymbolRefAttr group,
                  StringAttr bucket, const RankControl &control);
  RankFact exchange(CollectiveOpInterface op, const RankControl &control);
  RankFact draw(Operation *op, FlatSymbolRefAttr generator,
                const RankControl &control);
  template <typename OpTy>
  void reconstruct(OpTy op, const RankControl &control);
  void recordReach(Operation *op, const RankControl &control, RankMask bit);
  void access(Operation *op, const MemoryRegion &region, bool isWrite);
  void write(Operation *op, Value memref, const RankFact &fact, bool isWhole,
             const RankControl &control);
  MemoryRegion findRegion(OpResult result);
  MemoryRegion unite(const MemoryRegion &a, const MemoryRegion &b);
  RankMask &getStateMask(Operation *op, FlatSymbolRefAttr state);

  ModuleOp module;
  SymbolTableCollection symbols;
  llvm::DenseMap<Value, RankFact> facts;
  RankMemory memory;
  /// For a conditional start right after a choice on its condition: the memory
  /// as that choice leaves it if nothing is started.
  struct {
    Operation *start = nullptr;
    RankMemory memory;
  } memoryWithoutStart;
  /// For each memref that may be in one of several regions, the list of these.
  std::set<std::vector<MemoryRegion>> placeLists;
  /// Roots that the entry has written so far.
  llvm::DenseSet<const void *> written;
  llvm::DenseMap<Operation *, SmallVector<RankFact>> returned;
  llvm::DenseMap<Operation *, Reach> reached;
  bool isRecording = true;

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

  /// Blocks in order, and the terminators that decide about each.
  struct ControlFlow {
    SmallVector<Block *> order;
    llvm::DenseMap<Block *, SmallVector<Operation *, 2>> deciding;
    bool hasCycles = false;
  };
  const ControlFlow &getControlFlow(Region &region);
  RankMask getChoice(Operation *terminator);
  llvm::DenseMap<Region *, std::unique_ptr<ControlFlow>> controlFlows;
  /// The groups within which all ranks that are in a region leave it by this
  /// terminator; has no entry for the only terminator of a region.
  llvm::DenseMap<Operation *, RankMask> leftBy;
  RankMask getLeftBy(Operation *terminator) const {
    auto it = leftBy.find(terminator);
    return it == leftBy.end() ? kAllRanks : it->second;
  }

  llvm::DenseMap<StringAttr, RankMask> stateMasks;
  bool statesChanged = false;
  llvm::DenseMap<const void *, unsigned> sourceOf;
  /// The sources that a reduction reduces, by reduction and by the call that
  /// led to it.
  llvm::MapVector<std::pair<Operation *, Operation *>, unsigned> reducedSources;
};

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_RANKANALYSIS_H
