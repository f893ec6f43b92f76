//===- ConcatPlaces.h - locations of a bucket's parts -----------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Locates an operand of `ddp.concat` in its result, for the pass that computes
// operands there.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_DIALECT_DDP_TRANSFORMS_UTILS_CONCATPLACES_H
#define DDPHOOK_LIB_DIALECT_DDP_TRANSFORMS_UTILS_CONCATPLACES_H

#include "ddphook/Dialect/DDP/IR/DDP.h"

namespace mlir::ddp {

/// Creates an empty tensor before `before`.
Value createEmpty(Operation *before, Location loc, Type type);

/// The slice of a concat's result that holds operand `part`, in elements.
struct PartPlace {
  PartPlace(OpBuilder &builder, ConcatOp concat, unsigned part);

  OpFoldResult offset, size, stride;
};

/// Returns the operand of a concat in op's block that is the only use of
/// `result`, a part that can be computed in place. Returns null if there is
/// none or the part has no elements.
OpOperand *findConcatUse(FlatOpInterface op, Value result);

/// True if a concat has its operand `use` where `part` is in a split bucket.
bool isInSamePlace(OpOperand &use, Value part);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_DIALECT_DDP_TRANSFORMS_UTILS_CONCATPLACES_H
