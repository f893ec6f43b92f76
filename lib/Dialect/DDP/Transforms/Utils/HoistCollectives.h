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

/// Moves every all-reduce of the block, with the packing before it, up to the
/// point where its operands are complete and all earlier readers have read
/// them. An all-reduce of operands from outside of the block does not move.
void hoistCollectives(Block &block);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_DIALECT_DDP_TRANSFORMS_UTILS_HOISTCOLLECTIVES_H
