// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks that several operations of the dialect share. Comments such as C1
// refer to the constraints in an operation's description.

#pragma once

#include "ddphook/Dialect/DDP/IR/DDP.h"

#include <cmath>

namespace mlir::ddp {

/// True if two arrays hold the same elements in the same order. In memory their
/// layouts may differ: one of them may be a slice.
inline bool haveSameElements(Type a, Type b) {
  auto from = dyn_cast<MemRefType>(a), to = dyn_cast<MemRefType>(b);
  return a == b || (from && to && from.getShape() == to.getShape() &&
                    from.getElementType() == to.getElementType());
}

/// Checks the number of operands or results of one kind, `what`.
LogicalResult verifyCount(Operation *op, size_t found, size_t expected,
                          StringRef what);

/// Checks that all arrays are tensors, or all are memrefs. The first type is an
/// array.
LogicalResult verifyOneKind(Operation *op, TypeRange types);

/// Checks the process group of an all-reduce and, if it feeds back an error,
/// that the error's state has the same number and type of elements.
LogicalResult verifyReductionSymbols(CollectiveOpInterface op,
                                     SymbolTableCollection &symbols);

/// Checks that a collective sends its own type, f16, bf16 or an encoding, and
/// calls verifyStep().
LogicalResult verifyWire(CollectiveOpInterface op);

/// Checks that a collective has a training step if and only if its wire type
/// rounds stochastically.
LogicalResult verifyStep(CollectiveOpInterface op);

/// Checks that each result of a start is used by exactly one `wait` in the same
/// block or, with a condition, by one in each branch of an `scf.if` on it.
LogicalResult verifyIsAwaited(Operation *start, StringRef wait,
                              Value condition);

/// Returns the wait that ends the collective. A conditional start has a second
/// wait, which is a no-op.
Operation *findWait(Value awaited);

/// Checks an assignment to ranks, before the operation itself is verified.
LogicalResult verifyAssignment(Operation *op, Attribute attribute);

/// Checks that random draws of these sizes give `numElements` numbers.
LogicalResult verifyDraws(Operation *op, ArrayRef<int64_t> draws,
                          int64_t numElements);

/// Checks that `symbol` is a state that starts as a random generator.
LogicalResult verifyGenerator(Operation *op, FlatSymbolRefAttr symbol,
                              SymbolTableCollection &symbols);

// Helpers for the methods that TableGen defines for every flat operation.

/// Appends the types of the results that `into` operands have.
void inferFlatTypes(ValueRange destinations, SmallVectorImpl<Type> &types);

/// Appends reads of operands and writes of `into`, if those are memory.
void getFlatEffects(FlatOpInterface op,
                    SmallVectorImpl<MemoryEffects::EffectInstance> &effects);

// Checks for operations on buckets and their counterparts on flat arrays.

template <typename OpTy>
LogicalResult verifyDivisor(OpTy op) {
  if (op.getFactor().has_value() != op.getGroup().has_value())
    return success();
  return op.emitOpError() << "expected either a factor or a process group";
}

template <typename OpTy>
LogicalResult verifyEncoding(OpTy op) {
  auto encoding = dyn_cast<EncodedType>(op.getEncoding());
  if (!encoding)
    return op.emitOpError()
           << "expected an encoding, but got " << op.getEncoding();
  if (bool(op.getStep()) == encoding.isStochastic() &&
      bool(op.getGroup()) == encoding.isStochastic())
    return success();
  return op.emitOpError()
         << (encoding.isStochastic()
                 ? "expected a step and a process group, since the encoding "
                   "rounds stochastically"
                 : "expected neither a step nor a process group, since the "
                   "encoding rounds to nearest");
}

template <typename OpTy>
LogicalResult verifyTransposes(OpTy op) {
  if (!op.getTransposeLhs() || !op.getTransposeRhs())
    return success();
  return op.emitOpError() << "expected at most one operand to be transposed";
}

template <typename OpTy>
LogicalResult verifyEpsilon(OpTy op) {
  double epsilon = op.getEpsilon().convertToDouble();
  if (std::isfinite(epsilon) && epsilon >= 0)
    return success();
  return op.emitOpError() << "expected a finite epsilon of at least 0, but got "
                          << epsilon;
}

template <typename OpTy>
LogicalResult verifyDivided(OpTy op) {
  if (!op.getGroup() || op.getMatrix())
    return success();
  return op.emitOpError() << "expected a process group only with a matrix";
}

} // namespace mlir::ddp
