// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One-Shot Bufferize checks the choices of `ddp-assign-destinations`, but it
// does not know everything in the memory of a bucket or a state: the tensors
// unpacked from a bucket, and the next load of a state. So memory is reused
// only where MemoryUses.h proves that its contents are dead.

#pragma once

#include "ddphook/Dialect/DDP/IR/DDP.h"

namespace mlir::ddp {

/// Maps each value to the buffer that should hold it. A buffer is named by the
/// value that creates it, its root: a pack, an empty tensor, a load of a state,
/// the initial contents of an argument that a result replaces, or a part of a
/// split bucket.
///
/// Invariants: a root is its own root; a part is a root only if its bucket has
/// one; the memory of a value without a root must not be overwritten.
class BufferPool {
public:
  /// The number of recent buffers that a search considers: a full search is
  /// quadratic. So would be a single buffer for all, since One-Shot Bufferize
  /// compares all values of an alias set; hence the limit of reuses.
  /// `ddp-plan-arena` overlaps buffers anyway.
  static constexpr size_t maxCandidates = 16;
  static constexpr unsigned maxReuses = 8;

  /// Makes `root` a buffer that any later result of its type may reuse.
  void add(Value root) {
    roots[root] = root;
    buffers[root.getType()].push_back(root);
  }
  /// Creates an empty tensor before `before`, and adds it.
  Value create(Operation *before, Location loc, Type type);
  /// Records that `value` is in the buffer `root`, if it is not null. A `value`
  /// that is its own root becomes a buffer that `findDead` never returns.
  void setRoot(Value value, Value root) {
    if (root)
      roots[value] = root;
  }
  /// Returns the buffer that holds `value`, or null.
  Value getRoot(Value value) const { return roots.lookup(value); }

  /// Returns the load of the state that owns a buffer's memory, or null.
  LoadOp getState(Value root) const;

  /// From now on the memory of the parts of `split` belongs to the whole.
  void reassemble(SplitOp split) { reassembled.insert(split); }

  /// True if the rules for states and arguments allow `result` to live in the
  /// buffer `root`. The memory of a state may be overwritten only if the state
  /// gets a new value later, and only by values that are dead by then. The same
  /// holds for an argument.
  bool mayLiveIn(Value root, Value result);

  /// True if nothing reads or writes the buffer `root` at or after `op`, except
  /// op's own operand `value`.
  bool isDeadAfter(Value root, Value value, Operation *op) const;

  /// Returns an operand of the result's type that is dead after `op`, if
  /// possible in a state's memory, where its new value has to end up anyway.
  Value findDyingOperand(FlatOpInterface op, OpResult result);

  /// Returns the buffer where the then branch yields the same result, or null.
  Value findYielded(FlatOpInterface op, Value result);

  /// Returns a dead buffer of the result's type, or null; a state's memory only
  /// for results that are stored to it.
  Value findDead(Operation *op, Value result);

private:
  Value getWhole(Value root) const;
  StoreOp findNextStore(Operation *op, FlatSymbolRefAttr state);

  llvm::DenseMap<Value, Value> roots;
  /// Roots by type, in the order in which they were added.
  llvm::DenseMap<Type, SmallVector<Value>> buffers;
  /// How often each buffer has been reused.
  llvm::DenseMap<Value, unsigned> numReuses;
  /// For each block queried so far, its stores by state, in order. The pass
  /// neither adds nor removes stores.
  llvm::DenseMap<Block *, llvm::DenseMap<Attribute, SmallVector<StoreOp, 1>>>
      storesIn;
  llvm::DenseSet<Operation *> reassembled;
};

} // namespace mlir::ddp
