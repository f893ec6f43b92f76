//===- Dependences.h - what keeps operations in order -----------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What an operation needs, overwrites and touches, for passes that put the
// operations of a block into another order while everything is still a value.
// Collectives do not keep each other in order here: any order will do that is
// the same on all ranks.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_DEPENDENCES_H
#define DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_DEPENDENCES_H

#include "ddphook/Dialect/DDP/IR/DDP.h"

namespace mlir::ddp {

/// An effect on something that is no value: a state, memory, statistics.
struct Access {
  const void *what;
  bool isWrite;
};

/// What an operation does besides giving results. Nothing may move across one
/// whose effects are unknown, if it has an effect itself.
struct Effects {
  bool isUnknown = false;
  SmallVector<Access, 2> accesses;

  bool isNone() const { return !isUnknown && accesses.empty(); }
};

/// The effects of `op` and what is inside of it.
Effects getEffects(Operation *op);

/// Calls `visit` with every value from outside that `op`, or what is inside of
/// it, uses; and whether its result takes the place of that value, so that
/// later readers of the value would need a copy.
void forEachUse(Operation *op, function_ref<void(Value, bool)> visit);

/// The value that `value` is a part of, through slices and unpacks.
Value getWhole(Value value);

/// Whether there is nothing in a value that a reader could miss once it is
/// overwritten: an empty tensor, a constant, the zeros that a sum begins with.
bool isWithoutContents(Value value);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_DEPENDENCES_H
