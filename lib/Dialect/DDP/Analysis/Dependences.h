//===- Dependences.h - what keeps operations in order -----------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What an operation needs, overwrites and accesses, for passes that reorder the
// operations of a block at the levels at which everything is a value.
// Collectives do not depend on each other here: any order that is the same on
// all ranks is valid.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_DEPENDENCES_H
#define DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_DEPENDENCES_H

#include "ddphook/Dialect/DDP/IR/DDP.h"

namespace mlir::ddp {

/// An effect on something that is not a value: a state, memory, statistics.
struct Access {
  const void *what;
  bool isWrite;
};

/// The side effects of an operation. An operation with an effect must not move
/// across an operation whose effects are unknown.
struct Effects {
  bool isUnknown = false;
  SmallVector<Access, 2> accesses;

  bool isNone() const { return !isUnknown && accesses.empty(); }
};

/// The tensors under an operation that may lie in memory which the program also
/// uses as memory: what `bufferization.to_tensor` gives, and what may be made
/// in its place. Who uses one accesses that memory when it runs, not when the
/// tensor was made.
class TensorsInMemory {
public:
  TensorsInMemory() = default;
  explicit TensorsInMemory(Operation *root);

  bool isEmpty() const { return values.empty(); }
  bool contains(Value value) const { return values.contains(value); }

  /// How `op`, or an operation nested in it, accesses that memory by tensors.
  struct Use {
    bool reads = false, writes = false;
  };
  Use getUse(Operation *op) const;

private:
  llvm::DenseSet<Value> values;
};

/// The effects of `op` and of the operations nested in it.
Effects getEffects(Operation *op, const TensorsInMemory &inMemory = {});

/// Calls `visit` with every value from outside that `op`, or an operation
/// nested in it, uses; and whether its result takes the place of that value, so
/// that later readers of the value would need a copy.
void forEachUse(Operation *op, function_ref<void(Value, bool)> visit);

/// The value that `value` is a part of, through slices and unpacks.
Value getWhole(Value value);

/// Calls `visit` with the uses of `whole` and of its parts, through the same
/// operations. `visit` returns `advance` to go on, `skip` to leave out the
/// parts that come of this use, or `interrupt`, which then is the result.
WalkResult visitUsesOfParts(Value whole,
                            function_ref<WalkResult(OpOperand &)> visit);

/// Whether a value may be overwritten without harm to its readers, because it
/// is an empty tensor, a constant, or the zeros with which a sum begins.
bool isWithoutContents(Value value);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_DEPENDENCES_H
