//===- HoistFromBranches.h - moving collectives out of branches -*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lets collectives of a branch overlap with operations before the branch.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_DIALECT_DDP_TRANSFORMS_UTILS_HOISTFROMBRANCHES_H
#define DDPHOOK_LIB_DIALECT_DDP_TRANSFORMS_UTILS_HOISTFROMBRANCHES_H

#include "ddphook/Dialect/DDP/IR/DDP.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

namespace mlir::ddp {

/// Starts all-reduces of the then branch before `choice`, on its condition, and
/// leaves waits in both branches. Their operands must be complete before
/// `choice`, and only the else branch may use them later. If the then branch
/// only reduces an operand that has just been completed, the start follows
/// `choice` instead, with waits in the branches of another `scf.if`, so that
/// the else branch is not delayed.
void hoistFromBranch(scf::IfOp choice,
                     function_ref<bool(Operation *)> takesTime);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_DIALECT_DDP_TRANSFORMS_UTILS_HOISTFROMBRANCHES_H
