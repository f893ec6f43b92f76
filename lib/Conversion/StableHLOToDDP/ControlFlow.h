// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Converts them to the scf dialect.

#pragma once

#include "mlir/IR/BuiltinOps.h"

namespace mlir::ddp {

/// Converts all loops and branches, and removes barriers.
LogicalResult convertStableHLOControlFlow(ModuleOp module);

} // namespace mlir::ddp
