//===- AlgebraVerifiers.cpp ------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks and effects that are the same for all operations of the algebra.
//
//===----------------------------------------------------------------------===//

#include "AlgebraVerifiers.h"

using namespace mlir;
using namespace mlir::ddp;

LogicalResult mlir::ddp::verifyAlgebra(AlgebraOpInterface op,
                                       unsigned numValues) {
  MutableOperandRange destinations = op.getDestinationMutable();
  bool isMemory =
      llvm::any_of(op->getOperandTypes(), llvm::IsaPred<MemRefType>);
  if (isMemory) {
    if (destinations.size() == numValues && op->getNumResults() == 0)
      return success();
    return op->emitOpError()
           << (numValues == 1 ? "expected an 'into' operand and no result on "
                              : "expected an 'into' operand for each value and "
                                "no results on ")
           << "memrefs";
  }
  if (op->getNumResults() != numValues)
    return op->emitOpError()
           << (numValues == 1 ? "expected a result" : "expected results")
           << " on tensors and buckets";
  if (destinations.empty())
    return success();
  if (destinations.size() != numValues)
    return op->emitOpError()
           << "expected " << numValues << " 'into' operands, but got "
           << destinations.size();
  for (auto [operand, result] : llvm::zip(destinations, op->getResults()))
    if (operand.get().getType() != result.getType())
      return op->emitOpError()
             << "expected 'into' to have the result's type, but got "
             << operand.get().getType();
  return success();
}

LogicalResult mlir::ddp::verifyDestinationType(AlgebraOpInterface op) {
  Type input = op->getOperand(0).getType();
  for (OpOperand &operand : op.getDestinationMutable())
    if (Type into = operand.get().getType(); !haveSameElements(input, into))
      return op->emitOpError()
             << "expected 'into' to have the operand's type, but got " << into;
  return success();
}

LogicalResult mlir::ddp::verifyBinary(AlgebraOpInterface op) {
  Type input = op->getOperand(0).getType(), rhs = op->getOperand(1).getType();
  if (!haveSameElements(input, rhs)) // C2
    return op->emitOpError() << "expected operands of one type, but got "
                             << input << " and " << rhs;
  if (failed(verifyDestinationType(op))) // C2
    return failure();
  return verifyAlgebra(op); // C1
}

void mlir::ddp::getAlgebraEffects(
    AlgebraOpInterface op,
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>
        &effects) {
  MutableOperandRange destinations = op.getDestinationMutable();
  for (OpOperand &operand : op->getOpOperands()) {
    if (!isa<MemRefType>(operand.get().getType()))
      continue;
    bool isDestination = llvm::any_of(
        destinations, [&](OpOperand &other) { return &other == &operand; });
    if (isDestination)
      effects.emplace_back(MemoryEffects::Write::get(), &operand,
                           SideEffects::DefaultResource::get());
    else
      effects.emplace_back(MemoryEffects::Read::get(), &operand,
                           SideEffects::DefaultResource::get());
  }
}

LogicalResult mlir::ddp::verifyGroup(Operation *op, FlatSymbolRefAttr group,
                                     SymbolTableCollection &symbols) {
  Operation *target = symbols.lookupNearestSymbolFrom(op, group);
  if (!target)
    return op->emitOpError()
           << "expected process group " << group << " to be declared";
  if (isa<ProcessGroupOp>(target))
    return success();
  InFlightDiagnostic diagnostic = op->emitOpError() << "expected " << group
                                                    << " to be a process group";
  diagnostic.attachNote(target->getLoc()) << "this is what the name refers to";
  return diagnostic;
}
