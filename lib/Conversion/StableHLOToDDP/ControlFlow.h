//===- ControlFlow.h - loops and branches of StableHLO -------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Converts them to the scf dialect.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_CONVERSION_STABLEHLOTODDP_CONTROLFLOW_H
#define DDPHOOK_LIB_CONVERSION_STABLEHLOTODDP_CONTROLFLOW_H

#include "mlir/IR/BuiltinOps.h"

namespace mlir::ddp {

/// Converts all loops and branches, and removes barriers.
LogicalResult convertStableHLOControlFlow(ModuleOp module);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_CONVERSION_STABLEHLOTODDP_CONTROLFLOW_H
