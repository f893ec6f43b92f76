// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Converts them to the scf dialect.

#ifndef DDPHOOK_LIB_CONVERSION_STABLEHLOTODDP_CONTROLFLOW_H
#define DDPHOOK_LIB_CONVERSION_STABLEHLOTODDP_CONTROLFLOW_H

#include "mlir/IR/BuiltinOps.h"

namespace mlir::ddp {

/// Converts all loops and branches, and removes barriers.
LogicalResult convertStableHLOControlFlow(ModuleOp module);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_CONVERSION_STABLEHLOTODDP_CONTROLFLOW_H
