//===- StableHLO.h - StableHLO's operations by name -------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the passes ask of operations of which they know nothing but the name. An
// answer is checked, not believed: nobody verifies these operations.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_CONVERSION_STABLEHLOTODDP_STABLEHLO_H
#define DDPHOOK_LIB_CONVERSION_STABLEHLOTODDP_STABLEHLO_H

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Operation.h"

#include <optional>

namespace mlir::ddp {

inline bool isNamed(Operation *op, StringRef name) {
  return op && op->getName().getStringRef() == name;
}

/// An attribute as a file has it, of a registered dialect or not.
std::string getText(Attribute attribute);

/// The operands with which `block` ends, of an operation called `terminator`;
/// nothing if it ends otherwise.
std::optional<OperandRange> getYielded(Block &block, StringRef terminator);

/// The operation by which `region` combines two numbers of `type`; nothing if
/// it does anything else with them.
std::optional<StringRef> matchCombiner(Region &region, Type type);

/// Whether `op` communicates with other ranks or asks which rank this is.
bool isCollective(Operation *op);

/// Whether `op` computes its results from its operands, and does nothing else.
bool isComputation(Operation *op);

/// Whether `op` gives each element of its only operand as it is, somewhere
/// else: a reshape, a transpose, a broadcast.
bool isRearrangement(Operation *op);

/// Whether `op` converts one floating-point type to another.
bool isFloatConversion(Operation *op);

/// The number that all elements of `value` are, if it is known.
std::optional<APFloat> getSplat(Value value);

/// The only value from which `op` computes, constants aside; null if there are
/// several.
Value getOnlySource(Operation *op);

/// Replaces `op` by the values of its results, none of which may be a result:
/// no verifier looks for that in operations of dialects that are not
/// registered.
LogicalResult replaceByValues(Operation *op, ValueRange values);

/// Removes the operation of `value`, and those of its operands, as far as
/// nothing uses them.
void eraseIfUnused(Value value);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_CONVERSION_STABLEHLOTODDP_STABLEHLO_H
