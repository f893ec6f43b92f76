// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Some memory is reused without the knowledge of One-Shot Bufferize: dead
// buckets, the memory of a state between its load and its store, and arguments.
// These utilities determine whether the contents of such memory may still be
// needed.
// They use each operation's interfaces to find its effects on the memory of its
// operands; without interfaces the memory counts as always needed.

#pragma once

#include "ddphook/Dialect/DDP/IR/DDP.h"

#include "mlir/Dialect/Bufferization/IR/Bufferization.h"

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

/// True if `op` runs at most once per `tensor`, and no other operation uses the
/// memory of `tensor` then or later. `own` is how to visit op's uses:
/// `advance`, or `skip` to ignore values that share the memory because of them.
bool isLastUser(Operation *op, Value tensor, WalkResult own);

/// True if the user only reads the value: it does not pass the value on, and
/// none of its results shares the value's memory.
bool isOnlyRead(OpOperand &use);

/// True if no value that may share the memory of `value` is needed after
/// `write`, which writes this or another value to a state or an argument.
bool isOverBy(Value value, Operation *write);

/// The same for the values that share the memory because of one use.
bool isOverBy(OpOperand &use, Operation *write);

// An operation on flat tensors may overwrite an operand with its result. So the
// memory of a value may successively hold the results computed from it, and
// finally a state's new value.

/// Visits the uses of `value`, and of values that may be computed in place of
/// it. Returns the first use that `isFound` accepts, or null. A hook's values
/// are stored a few operations later; following longer chains would be
/// quadratic.
OpOperand *findUseInPlace(Value value, function_ref<bool(OpOperand &)> isFound);

/// True if `value`, or a value that may be computed in place of it, becomes the
/// state's new value.
bool endsInStore(Value value, StringRef state);

/// True if `value` is still used when the value that `store` stores has been
/// computed. In the state's memory it would occupy the space for that value.
bool outlivesMaking(Value value, StoreOp store);

/// After `ddp-prepare-entries`, an argument that the program may write is read
/// through one `bufferization.to_tensor`, and a result that updates it is
/// written by one `bufferization.materialize_in_destination` at the end. In
/// between the function may use its memory. If `tensor` is the initial contents
/// of such an argument, returns the operation that writes the result to it.
/// Returns null for other tensors, if no result replaces the argument, if the
/// function has several blocks, or if anything else reads or writes the
/// argument as memory.
bufferization::MaterializeInDestinationOp findArgumentUpdate(Value tensor);

} // namespace mlir::ddp
