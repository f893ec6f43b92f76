//===- Statistics.h - reductions that are no gradients ----------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds reductions inside of a model: statistics of a batch over all ranks,
// sums of what several ranks compute of one layer. Their results go into what
// other reductions add up. A gradient does that only by way of a parameter that
// it has moved; a parameter is what a step gives a new value.
//
// And averages of what each rank keeps from step to step, such as a layer's
// running statistics: what is reduced is an old value to which the rank has
// added something, and the result is the new one. A function that only returns
// gradients may look the same, if weight decay is in them; so this is believed
// only of a program that also moves parameters by reduced gradients.
//
// In such a program a value that is never combined with a parameter or a state
// is no gradient either, but a metric, such as a confusion matrix that the step
// returns.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_CONVERSION_STABLEHLOTODDP_STATISTICS_H
#define DDPHOOK_LIB_CONVERSION_STABLEHLOTODDP_STATISTICS_H

#include "ValueFlow.h"

namespace mlir::ddp {

class Statistics {
public:
  explicit Statistics(ValueFlow &flow) : flow(flow) {}

  /// Whether `value`, a result of a 'stablehlo.all_reduce', is a part of a
  /// model and no gradient.
  bool contains(Value value);

  /// Whether `value`, of which `contains` was asked as of all others of its
  /// program, is an average of states.
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
  /// What is known of values as parameters; false while it is found out.
  llvm::DenseMap<Value, bool> parameters;
  /// The same of arguments of functions, whether a step gives new values.
  llvm::DenseMap<Value, bool> trained;
  /// Reductions that reach a parameter, or may do so.
  llvm::DenseSet<Value> used;
  /// Whether the program has reductions that move parameters.
  bool hasGradients = false;
};

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_CONVERSION_STABLEHLOTODDP_STATISTICS_H
