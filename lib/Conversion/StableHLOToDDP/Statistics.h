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

private:
  bool isParameter(Value value, int64_t size, unsigned depth);
  bool isTrained(Value value);
  bool moves(Operation *op, Value gradient, int64_t size);

  ValueFlow &flow;
  /// What is known of values as parameters; false while it is found out.
  llvm::DenseMap<Value, bool> parameters;
  /// The same of arguments of functions, whether a step gives new values.
  llvm::DenseMap<Value, bool> trained;
};

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_CONVERSION_STABLEHLOTODDP_STATISTICS_H
