// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Removes branches on the process's index that upstream's partitioner creates.

#pragma once

#include "mlir/IR/Operation.h"

namespace mlir::ddp {

/// Folds the branches of `root` that depend on the process's index but compute
/// the same on all processes, erases the unused conditions, and replaces the
/// shapes of grids by constants.
void foldProcessIndices(Operation *root);

} // namespace mlir::ddp
