// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds reductions inside a model: statistics of a batch, or sums of what
// several ranks compute of one layer. Their results flow into other reductions.
// A gradient does so only through a parameter that it has updated; a parameter
// is an argument to which the step gives a new value.
//
// Also finds averages of state that each rank keeps between steps, such as a
// layer's running statistics: the operand is an old value to which the rank has
// added something, and the result is the new value. A function that returns
// gradients with weight decay looks the same, so the program must also update
// parameters by reduced gradients.
//
// In such a program a value that is never combined with a parameter or a state
// is no gradient either, but a metric, such as a confusion matrix that the step
// returns.

#pragma once

#include "ValueFlow.h"

namespace mlir::ddp {

class NonGradients {
public:
  explicit NonGradients(ValueFlow &flow) : flow(flow) {}

  /// Returns true if `value`, a result of a 'stablehlo.all_reduce', is part of
  /// a model and not a gradient.
  bool contains(Value value);

  /// Returns true if `value` is an average of states. Call `contains` for all
  /// reductions of the program first.
  bool isAverage(OpResult value);

  /// Returns true if `value` reaches no parameter. `contains` must have been
  /// called for all reductions of the program.
  bool isMetric(OpResult value) const;

private:
  bool meetsParameter(Operation *op, Value value);
  bool isMovedState(Value value);
  bool isOnlyReturned(Value value);
  bool isParameter(Value value, int64_t size, unsigned depth);
  bool isTrained(Value value);
  bool moves(Operation *op, Value gradient, int64_t size);

  ValueFlow &flow;
  /// Caches `isParameter`; false while it is being computed.
  llvm::DenseMap<Value, bool> parameters;
  /// Caches `isTrained` for arguments of functions.
  llvm::DenseMap<Value, bool> trained;
  /// Reductions that reach a parameter, or may do so.
  llvm::DenseSet<Value> used;
  /// True if the program has reductions that update parameters.
  bool hasGradients = false;
};

} // namespace mlir::ddp
