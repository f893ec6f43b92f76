// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The operands that an operation uses and overwrites, and its side effects, for
// passes that reorder the operations of a block at levels where everything is a
// value. Collectives do not depend on each other here: any order that is the
// same on all ranks is valid.

#pragma once

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

/// The tensors under an operation that may be in memory which the program also
/// uses as memory: results of `bufferization.to_tensor`, and values that may be
/// computed in place of them. Their users access that memory when they run, not
/// when the tensor was created.
class TensorsInMemory {
public:
  TensorsInMemory() = default;
  explicit TensorsInMemory(Operation *root);

  bool isEmpty() const { return values.empty(); }
  bool contains(Value value) const { return values.contains(value); }

  /// How `op` or a nested operation accesses that memory through tensors.
  struct Use {
    bool reads = false, writes = false;
  };
  Use getUse(Operation *op) const;

private:
  llvm::DenseSet<Value> values;
};

/// Returns the effects of `op` and of the operations nested in it.
Effects getEffects(Operation *op, const TensorsInMemory &inMemory = {});

/// Calls `visit` with every outer value that `op`, or an operation nested in
/// it, uses. The flag is true if the result replaces that value, so that later
/// readers of the value would need a copy.
void forEachUse(Operation *op, function_ref<void(Value, bool)> visit);

/// Returns the value that `value` is a part of, through slices and unpacks.
Value getWhole(Value value);

/// Calls `visit` with the uses of `whole` and of its parts, through the same
/// operations. `visit` returns `advance` to continue, `skip` to ignore the
/// parts that this use creates, or `interrupt`, which is then the result.
WalkResult visitUsesOfParts(Value whole,
                            function_ref<WalkResult(OpOperand &)> visit);

/// True if a value may be overwritten without affecting its readers, because it
/// is an empty tensor, a constant, or the zeros that a sum starts from.
bool isWithoutContents(Value value);

} // namespace mlir::ddp
