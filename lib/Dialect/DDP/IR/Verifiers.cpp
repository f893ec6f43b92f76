//===- Verifiers.cpp -------------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks that several operations of the dialect share.
//
//===----------------------------------------------------------------------===//

#include "Verifiers.h"

using namespace mlir;
using namespace mlir::ddp;

LogicalResult mlir::ddp::verifyGroup(Operation *op, FlatSymbolRefAttr group,
                                     SymbolTableCollection &symbols) {
  if (!group)
    return success();
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

LogicalResult mlir::ddp::verifyWire(CollectiveOpInterface op) {
  TypeAttr wire = op.getWireAttr();
  if (!wire || isa<Float16Type, BFloat16Type>(wire.getValue()))
    return success();
  return op->emitOpError() << "expected wire type f16 or bf16, but got "
                           << wire.getValue();
}

LogicalResult mlir::ddp::verifyIsAwaited(Operation *start, StringRef wait) {
  Operation *awaiting = nullptr;
  for (Value result : start->getResults()) {
    if (!result.hasOneUse())
      return start->emitOpError()
             << "expected to be awaited exactly once, but its "
             << "result has " << result.getNumUses() << " uses";
    Operation *user = *result.user_begin();
    bool isWait = user->getName().getStringRef() == wait;
    if (isWait && user->getBlock() == start->getBlock() &&
        (!awaiting || awaiting == user)) {
      awaiting = user;
      continue;
    }
    InFlightDiagnostic diagnostic =
        start->emitOpError()
        << "expected to be awaited by one '" << wait
        << "' in the same block, but its result is used by '" << user->getName()
        << "'" << (isWait ? " elsewhere" : "");
    diagnostic.attachNote(user->getLoc()) << "this is the use";
    return diagnostic;
  }
  return success();
}
