// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Helpers for operations that the passes know only by name. The answers are
// checked in full, because no verifier has seen these operations.

#pragma once

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"

#include <optional>

namespace mlir::ddp {

inline bool isNamed(Operation *op, StringRef name) {
  return op && op->getName().getStringRef() == name;
}

/// Prints an attribute of any dialect, registered or not.
std::string getText(Attribute attribute);

/// Returns the operands of the terminator of `block`, or nothing if it is not
/// called `terminator`.
std::optional<OperandRange> getYielded(Block &block, StringRef terminator);

/// Returns the operation by which `region` combines two numbers of `type`, or
/// nothing if it does anything else.
std::optional<StringRef> matchCombiner(Region &region, Type type);

/// Returns true if `op` communicates with other ranks or asks for the own rank.
bool isCollective(Operation *op);

/// Returns true if `op` only computes its results from its operands.
bool isComputation(Operation *op);

/// Returns true if `op` only moves or repeats the elements of its one operand:
/// a reshape, a transpose, a broadcast.
bool isRearrangement(Operation *op);

/// Returns true if `op` converts one floating-point type to another.
bool isFloatConversion(Operation *op);

/// Returns the value of all elements of `value` if it is a known constant.
std::optional<APFloat> getSplat(Value value);

/// Returns the only operand of `op` other than constants, or null if there are
/// several.
Value getOnlySource(Operation *op);

/// Replaces `op` by `values`, none of which may be one of its own results:
/// unregistered operations have no verifier that checks for such cycles.
LogicalResult replaceByValues(Operation *op, ValueRange values);

/// Converts all loops and branches to the scf dialect, and removes barriers.
LogicalResult convertStableHLOControlFlow(ModuleOp module);

} // namespace mlir::ddp
