//===- AlgebraVerifiers.h - what the bucket algebra shares ------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks and effects that are the same for all operations of the algebra.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_DIALECT_DDP_IR_ALGEBRAVERIFIERS_H
#define DDPHOOK_LIB_DIALECT_DDP_IR_ALGEBRAVERIFIERS_H

#include "ddphook/Dialect/DDP/IR/DDP.h"

namespace mlir::ddp {

/// The kind of an algebra operation's operand decides about its result.
inline LogicalResult inferAlgebraType(Value input,
                                      SmallVectorImpl<Type> &types) {
  if (!isa<MemRefType>(input.getType()))
    types.push_back(input.getType());
  return success();
}

/// Whether two values hold the same elements in the same order. On memory the
/// layouts may differ: one of them may be a slice.
inline bool haveSameElements(Type a, Type b) {
  auto from = dyn_cast<MemRefType>(a), to = dyn_cast<MemRefType>(b);
  return a == b || (from && to && from.getShape() == to.getShape() &&
                    from.getElementType() == to.getElementType());
}

/// C1 of every algebra operation. `numValues` is the number of values that it
/// computes.
LogicalResult verifyAlgebra(AlgebraOpInterface op, unsigned numValues = 1);

/// For operations that keep the type: `into` has the operand's.
LogicalResult verifyDestinationType(AlgebraOpInterface op);

/// For operations on two operands of one type.
LogicalResult verifyBinary(AlgebraOpInterface op);

/// Reads of operands and writes of `into`, once those are memory.
void getAlgebraEffects(
    AlgebraOpInterface op,
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>
        &effects);

/// Checks that `symbol` is a process group.
LogicalResult verifyGroup(Operation *op, FlatSymbolRefAttr symbol,
                          SymbolTableCollection &symbols);

/// Checks that random draws of these sizes give `numElements` numbers.
LogicalResult verifyDraws(Operation *op, ArrayRef<int64_t> draws,
                          int64_t numElements);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_DIALECT_DDP_IR_ALGEBRAVERIFIERS_H
