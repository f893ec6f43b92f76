// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The part of RankAnalysis that handles memory: finds the regions of memrefs,
// and follows what operations read and write there.

#pragma once

#include "RankFacts.h"

#include "mlir/Interfaces/CallInterfaces.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/LoopLikeInterface.h"

namespace mlir::ddp {

inline bool isMemory(Value value) {
  return isa<BaseMemRefType>(value.getType());
}

/// The memory and the states of a program. Invariant: `memory` is what is in
/// memory at the point of the program that is being visited.
class RankRegions {
public:
  explicit RankRegions(RankFacts &facts) : facts(facts) {}

  /// Forgets the memory: another entry begins.
  void startEntry() {
    memory = RankMemory();
    written.clear();
  }

  /// Returns the fact about an argument of an entry.
  RankFact createArgument(Value value, bool isReplicated);

  /// Returns the memory to which the memref `result` refers.
  MemoryRegion find(OpResult result);

  /// Returns the fact about an operand of `op`: of a memref, about its
  /// contents.
  RankFact read(Operation *op, Value value);

  /// Overwrites all of a memref, or some of it.
  void write(Operation *op, Value memref, const RankFact &fact, bool isWhole,
             const RankControl &control);

  /// Follows a collective on memory; `fact` is about its result.
  void followCollective(CollectiveOpInterface op, Value destination,
                        const RankFact &fact, const RankControl &control);

  /// Follows the wait `op` for the collective `start`.
  void followWait(Operation *op, Operation *start);

  /// Keeps the memory for `start`, which is a conditional start right after a
  /// choice on its condition: as that choice leaves it if nothing is started.
  void keepWithoutStart(Operation *start) {
    memoryWithoutStart = {start, memory};
  }

  /// Forgets the contents of memory that the loop overwrites completely, slice
  /// by slice, and does not access in any other way: nothing reads them
  /// anymore.
  void forgetOverwritten(LoopLikeOpInterface loop);

  /// Renames a buffer that the function made and returns: it is another one
  /// after each call. The next call may be given it, and makes its own.
  void renameMade(CallOpInterface call, FunctionOpInterface function);

  /// Returns the groups within which the value of a state is the same when
  /// a step begins.
  RankMask getState(Operation *op, FlatSymbolRefAttr name) {
    return narrowState(op, name, kAllRanks);
  }
  /// Removes the groups that are not in `mask`, and returns the others.
  RankMask narrowState(Operation *op, FlatSymbolRefAttr name, RankMask mask);

  /// True if the entry has written to this root so far.
  bool isWritten(const void *root) const { return written.contains(root); }

  RankMemory memory;
  /// True if `narrowState` has removed a group.
  bool statesChanged = false;
  /// Operations that access memory that a collective in flight uses.
  llvm::MapVector<Operation *, Operation *> conflicts;

private:
  void access(Operation *op, const MemoryRegion &region, bool isWrite);

  RankFacts &facts;
  SymbolTableCollection symbols;
  struct {
    Operation *start = nullptr;
    RankMemory memory;
  } memoryWithoutStart;
  /// Roots that the entry has written so far.
  llvm::DenseSet<const void *> written;
  llvm::DenseMap<StringAttr, RankMask> stateMasks;
};

} // namespace mlir::ddp
