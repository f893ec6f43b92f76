//===- UsesInPlace.h - uses through in-place results ------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An operation on flat tensors may overwrite an operand with its result. So the
// memory of a value may successively hold the results computed from it, and
// finally a state's new value.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_USESINPLACE_H
#define DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_USESINPLACE_H

#include "ddphook/Dialect/DDP/IR/DDP.h"

namespace mlir::ddp {

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

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_USESINPLACE_H
