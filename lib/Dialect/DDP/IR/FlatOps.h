// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Helpers for the methods that TableGen defines for every flat operation.

#pragma once

#include "ddphook/Dialect/DDP/IR/DDP.h"

namespace mlir::ddp {

/// Appends the types of the results that `into` operands have.
void inferFlatTypes(ValueRange destinations, SmallVectorImpl<Type> &types);

/// Appends reads of operands and writes of `into`, if those are memory.
void getFlatEffects(
    FlatOpInterface op,
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>
        &effects);

} // namespace mlir::ddp
