//===- ProcessIndex.h - branches for one process ----------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What upstream's partitioner asks of a process's index, and needs not know.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_CONVERSION_SHARDTODDP_PROCESSINDEX_H
#define DDPHOOK_LIB_CONVERSION_SHARDTODDP_PROCESSINDEX_H

#include "mlir/IR/Operation.h"

namespace mlir::ddp {

/// Replaces the branches of `root` that depend on the process's index and
/// compute the same on all processes, removes what only their conditions
/// needed, and makes constants of the shapes of grids.
void foldProcessIndices(Operation *root);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_CONVERSION_SHARDTODDP_PROCESSINDEX_H
