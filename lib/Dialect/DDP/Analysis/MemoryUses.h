//===- MemoryUses.h - later uses of a tensor's memory -----------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Some memory is reused without the knowledge of One-Shot Bufferize: dead
// buckets, and the memory of a state between its load and its store. These
// utilities determine whether the contents of such memory may still be needed.
// They use each operation's interfaces to find its effects on the memory of its
// operands; without interfaces the memory counts as always needed.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_MEMORYUSES_H
#define DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_MEMORYUSES_H

#include "ddphook/Dialect/DDP/IR/DDP.h"

namespace mlir::ddp {

/// Calls `visit` with every use of `tensor` and of each value that may be in
/// the same memory because of such a use: results that are computed in place,
/// views, values that a branch yields. `visit` returns `advance` to continue,
/// `skip` to ignore values that share the memory because of this use, or
/// `interrupt`.
///
/// Returns `interrupt` if `visit` does, and also if the memory may be used in a
/// way that cannot be followed: as a buffer, along a branch between blocks, in
/// the next iteration of a loop around `tensor`, or by an operation without the
/// necessary interfaces.
WalkResult visitMemoryUses(Value tensor,
                           function_ref<WalkResult(OpOperand &)> visit);

/// Returns the results and block arguments that receive a terminator's operand,
/// according to the interfaces of the terminator and of the operation around
/// it; nullopt without these interfaces.
std::optional<SmallVector<Value, 2>> getYieldedTo(OpOperand &use);

/// For visitMemoryUses, if `op` runs at most once per visited tensor: returns
/// `advance` if `user` runs before `op`, `skip` if it runs only where `op` does
/// not, and `interrupt` if it may run after `op`.
WalkResult requireBefore(Operation *user, Operation *op);

/// True if `op` runs at most once each time that `value` is computed: it is in
/// the same block or in branches there, and no loop is in between.
bool runsAtMostOncePer(Value value, Operation *op);

/// True if the user only reads the value: it does not pass the value on, and
/// none of its results shares the value's memory.
bool isOnlyRead(OpOperand &use);

/// True if no value that may share the memory of `value` is needed after
/// `write`, which writes this or another value to a state or an argument.
bool isOverBy(Value value, Operation *write);

/// The same for the values that share the memory because of one use.
bool isOverBy(OpOperand &use, Operation *write);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_MEMORYUSES_H
