//===- StateUses.h - when a state's old value is over -----------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A load and a store of a state are the same memory in the end, and One-Shot
// Bufferize does not know. These utilities find out whether a value that lies
// in that memory is still needed when the store has overwritten it.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_DIALECT_DDP_TRANSFORMS_STATEUSES_H
#define DDPHOOK_LIB_DIALECT_DDP_TRANSFORMS_STATEUSES_H

#include "ddphook/Dialect/DDP/IR/DDP.h"

namespace mlir::ddp {

/// Whether `user` runs before `op`, or only where `op` does not.
bool isOverBefore(Operation *user, Operation *op);

/// Whether the user reads the value, and keeps nothing of its memory.
bool isOnlyRead(OpOperand &use);

/// Whether nothing that may be (a part of) the memory of `value` is read behind
/// `store`, a store of another value or of this one.
bool isOverBy(Value value, StoreOp store);

/// The same for one use.
bool isOverBy(OpOperand &use, StoreOp store);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_DIALECT_DDP_TRANSFORMS_STATEUSES_H
