// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A tensor is often computed by a chain of operations that each update an
// operand in place: an empty tensor, a fill, a matmul. To put the tensor into a
// given buffer, the chain has to start there. These utilities find the start.

#pragma once

#include "ddphook/Dialect/DDP/IR/DDP.h"

namespace mlir::ddp {

/// Returns the operand that becomes `value` if the operation that defines it
/// updates an operand in place, or null. For an `scf.if` whose branches all
/// update the same value, that is the operand of a yield.
OpOperand *getTiedOperand(Value value);

/// True if every use of `value`, except those by `except`, is a read that ends
/// before `limit`.
bool isOnlyReadBefore(Value value, Operation *except, Operation *limit);

/// Follows the chain that computes `value` back to the `tensor.empty` at its
/// start and returns the operand that holds it. Returns null if there is no
/// such chain within consumer's block, or if another operation needs a value
/// that the chain overwrites. Clones a fill that several chains use.
OpOperand *findChainStart(Value value, Operation *consumer);

/// Returns the start of the collective in flight that uses the value of `use`
/// again: in its wait, and as `into` if it has a condition. Otherwise null.
FlatStartOpInterface getStartOn(OpOperand &use);

/// Replaces the value of `use`. `value` must be available before the operation
/// and before getStartOn(), of which all uses of the old value are replaced.
void replaceUse(OpOperand &use, Value value);

/// Makes the chain that starts with the `tensor.empty` in `start` start with
/// `memory` instead.
void setChainStart(OpOperand &start, Value memory);

} // namespace mlir::ddp
