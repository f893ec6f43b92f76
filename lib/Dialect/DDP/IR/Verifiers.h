//===- Verifiers.h - checks that operations share ---------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks that several operations of the dialect share.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_DIALECT_DDP_IR_VERIFIERS_H
#define DDPHOOK_LIB_DIALECT_DDP_IR_VERIFIERS_H

#include "ddphook/Dialect/DDP/IR/DDP.h"

#include <cmath>

namespace mlir::ddp {

/// Whether two arrays hold the same elements in the same order. On memory the
/// layouts may differ: one of them may be a slice.
inline bool haveSameElements(Type a, Type b) {
  auto from = dyn_cast<MemRefType>(a), to = dyn_cast<MemRefType>(b);
  return a == b || (from && to && from.getShape() == to.getShape() &&
                    from.getElementType() == to.getElementType());
}

/// Checks that `symbol`, if there is one, is a process group.
LogicalResult verifyGroup(Operation *op, FlatSymbolRefAttr symbol,
                          SymbolTableCollection &symbols);

/// Checks the process group of an all-reduce, and that the state whose error it
/// feeds back, if there is one, has as many elements of its type.
LogicalResult verifyReductionSymbols(CollectiveOpInterface op,
                                     SymbolTableCollection &symbols);

/// Checks that a collective travels in its own type, f16, bf16 or encoded, and
/// verifyStep().
LogicalResult verifyWire(CollectiveOpInterface op);

/// Checks that a collective has a training step if its wire type rounds
/// stochastically, and only then.
LogicalResult verifyStep(CollectiveOpInterface op);

/// Checks that each result of a collective that is started is used once, by
/// one `wait` in the same block; with a condition, by one in each branch of an
/// `scf.if` on it.
LogicalResult verifyIsAwaited(Operation *start, StringRef wait,
                              Value condition);

/// The wait, of a start without a condition or with one, that ends the
/// collective: the other one has nothing to wait for.
Operation *findWait(Value awaited);

/// Checks a `ddp.deal`, before the operation itself has been verified.
LogicalResult verifyDeal(Operation *op, Attribute attribute);

/// Checks that random draws of these sizes give `numElements` numbers.
LogicalResult verifyDraws(Operation *op, ArrayRef<int64_t> draws,
                          int64_t numElements);

/// Checks that `symbol` is a state that begins as a random generator.
LogicalResult verifyGenerator(Operation *op, FlatSymbolRefAttr symbol,
                              SymbolTableCollection &symbols);

// What an operation on buckets and its twin on flat arrays both check.

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

#endif // DDPHOOK_LIB_DIALECT_DDP_IR_VERIFIERS_H
