//===- UsesInPlace.h - what becomes of a value's memory ---------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An operation on flat tensors may write its result over an operand. So the
// memory of a value may hold what is computed from it, one operation after the
// other, and end as a state's new value.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_USESINPLACE_H
#define DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_USESINPLACE_H

#include "ddphook/Dialect/DDP/IR/DDP.h"

namespace mlir::ddp {

/// Visits the uses of `value`, and of what may be computed in its place, until
/// one is what is looked for. Returns that one, or null. A hook's values are
/// stored a few operations behind; to follow longer chains would be quadratic.
OpOperand *findUseInPlace(Value value, function_ref<bool(OpOperand &)> isFound);

/// Whether `value`, or what may be computed in its place, becomes the state's
/// new value.
bool endsInStore(Value value, StringRef state);

/// Whether `value` is still used when what `store` stores is there already:
/// in the state's memory it would leave no room for that.
bool outlivesMaking(Value value, StoreOp store);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_USESINPLACE_H
