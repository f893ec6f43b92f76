//===- InPlaceChain.h - where a tensor's memory comes from ------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A tensor is often made by a chain of operations each of which updates an
// operand in place: an empty tensor, a fill, a matmul. To have it in a given
// place, the chain has to start there. These utilities find the start.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_DIALECT_DDP_TRANSFORMS_UTILS_INPLACECHAIN_H
#define DDPHOOK_LIB_DIALECT_DDP_TRANSFORMS_UTILS_INPLACECHAIN_H

#include "ddphook/Dialect/DDP/IR/DDP.h"

namespace mlir::ddp {

/// The operand that becomes `value`, if the operation that defines it updates
/// an operand in place; else null. Of an `scf.if` of which all branches update
/// the same value, the operand of a yield.
OpOperand *getTiedOperand(Value value);

/// Whether every use of `value` but those by `except` is a read that is over
/// before `limit`.
bool isOnlyReadBefore(Value value, Operation *except, Operation *limit);

/// Follows the chain that makes `value` back to the `tensor.empty` at its start
/// and returns the operand that holds it; null if there is no such chain within
/// consumer's block, or another operation needs what the chain overwrites. A
/// fill that several chains share is cloned: each needs its own.
OpOperand *findChainStart(Value value, Operation *consumer);

/// The collective in flight that names what `use` is more than once: again in
/// its wait, and as `into` if it has a condition. Null for all other uses.
FlatStartOpInterface getStartOn(OpOperand &use);

/// Lets `use` be `value`, which is there before the operation and before
/// getStartOn(). A collective in flight names it wherever it named the old one.
void replaceUse(OpOperand &use, Value value);

/// Makes the chain that begins with the `tensor.empty` in `start` begin with
/// `memory` instead.
void setChainStart(OpOperand &start, Value memory);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_DIALECT_DDP_TRANSFORMS_UTILS_INPLACECHAIN_H
