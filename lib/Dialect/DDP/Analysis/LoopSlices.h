//===- LoopSlices.h - loops that write a tensor in slices ------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Whether the iterations of a loop, each of which inserts one slice, together
// write all of a tensor.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_DIALECT_DDP_TRANSFORMS_LOOPSLICES_H
#define DDPHOOK_LIB_DIALECT_DDP_TRANSFORMS_LOOPSLICES_H

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

namespace mlir::ddp {

/// What a loop's variable goes through.
struct LoopRange {
  Value variable;
  OpFoldResult begin, end, step;
};

/// Whether a loop with these variables that inserts `slice` into a tensor of
/// this type in each iteration, or writes to it in memory, writes all of it: slices lie along some
/// dimensions from begin to end, one behind the other. What cannot be told from
/// constants is not so.
bool coversAll(OffsetSizeAndStrideOpInterface slice, ShapedType type,
               ArrayRef<LoopRange> ranges);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_DIALECT_DDP_TRANSFORMS_LOOPSLICES_H
