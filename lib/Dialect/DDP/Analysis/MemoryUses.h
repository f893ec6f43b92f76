//===- MemoryUses.h - who may touch a tensor's memory -----------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Some memory is put to a second use behind the back of One-Shot Bufferize: a
// bucket that nothing needs any more, the memory of a state between its load
// and its store. These utilities say whether anything may still need what lies
// there. They ask each operation's interfaces what becomes of its operands'
// memory; where no interface answers, the memory counts as needed for ever.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_MEMORYUSES_H
#define DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_MEMORYUSES_H

#include "ddphook/Dialect/DDP/IR/DDP.h"

namespace mlir::ddp {

/// Calls `visit` with every use of `tensor` and of each value that may lie in
/// the same memory because of such a use: results that are computed in place,
/// views, what a branch yields. `visit` returns `advance` to go on, `skip` to
/// leave out what lies in the memory because of this use, or `interrupt`.
///
/// The result is `interrupt` if `visit` returned it, and also if the memory may
/// go where it cannot be followed: into a buffer, along a branch of blocks,
/// the next iteration of a loop around `tensor`, or an operation that does not
/// say what it does with it.
WalkResult visitMemoryUses(Value tensor,
                           function_ref<WalkResult(OpOperand &)> visit);

/// For visitMemoryUses, where `op` runs at most once per visited tensor: goes
/// on if `user` runs before `op`, leaves out what runs only where `op` does
/// not, and interrupts if `user` may run behind `op`.
WalkResult requireBefore(Operation *user, Operation *op);

/// Whether `op` runs at most once each time that `value` is computed: it is in
/// the same block or in branches there, and no loop is in between.
bool runsAtMostOncePer(Value value, Operation *op);

/// Whether the user reads the value, hands it on to nobody, and no result of it
/// lies in its memory.
bool isOnlyRead(OpOperand &use);

/// Whether nothing that may lie in the memory of `value` is needed behind
/// `store`, a store of another value or of this one.
bool isOverBy(Value value, StoreOp store);

/// The same for what lies in the memory because of one use.
bool isOverBy(OpOperand &use, StoreOp store);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_MEMORYUSES_H
