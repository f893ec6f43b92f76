// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Decides whether the iterations of a loop, each of which writes one slice,
// together write all of a tensor or memref.

#pragma once

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

namespace mlir::ddp {

/// The range of a loop's induction variable.
struct LoopRange {
  Value variable;
  OpFoldResult begin, end, step;
};

/// Returns the ranges of a loop's induction variables; none if the loop does
/// not tell them.
SmallVector<LoopRange> getRanges(LoopLikeOpInterface loop);

/// Returns true if a loop with these ranges that writes `slice` of a tensor or
/// memref of this type in each iteration writes all of it: the slices follow
/// one another along some dimensions from the first index to the last. Returns
/// false if an offset, a size or a bound is not constant.
bool coversAll(OffsetSizeAndStrideOpInterface slice, ShapedType type,
               ArrayRef<LoopRange> ranges);

} // namespace mlir::ddp
