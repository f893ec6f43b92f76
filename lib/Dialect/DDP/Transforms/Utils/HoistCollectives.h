//===- HoistCollectives.h - all-reduces as early as possible ----*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The first half of `ddp-overlap`.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_DIALECT_DDP_TRANSFORMS_UTILS_HOISTCOLLECTIVES_H
#define DDPHOOK_LIB_DIALECT_DDP_TRANSFORMS_UTILS_HOISTCOLLECTIVES_H

#include "ddphook/Dialect/DDP/IR/DDP.h"

namespace mlir::ddp {

/// Moves every all-reduce of the block, with the packing in front of it, up to
/// where its operands are complete and read for the last time before it.
/// Operands from outside of the block leave it where it is.
void hoistCollectives(Block &block);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_DIALECT_DDP_TRANSFORMS_UTILS_HOISTCOLLECTIVES_H
