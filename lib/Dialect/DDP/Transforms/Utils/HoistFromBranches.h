//===- HoistFromBranches.h - collectives out of branches --------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// So that they can be in flight while operations in front of the branch run.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_DIALECT_DDP_TRANSFORMS_UTILS_HOISTFROMBRANCHES_H
#define DDPHOOK_LIB_DIALECT_DDP_TRANSFORMS_UTILS_HOISTFROMBRANCHES_H

#include "ddphook/Dialect/DDP/IR/DDP.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

namespace mlir::ddp {

/// Starts every all-reduce in the then branch whose operand is complete in
/// front of `choice` there, if the condition is true, and leaves waits in both
/// branches. The other branch may use the operand; nothing else may that comes
/// later. If the then branch only reduces what has just been completed, the
/// start comes behind `choice` instead, with waits in the branches of another
/// `scf.if`, so that the other branch is not put off.
void hoistFromBranch(scf::IfOp choice,
                     function_ref<bool(Operation *)> takesTime);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_DIALECT_DDP_TRANSFORMS_UTILS_HOISTFROMBRANCHES_H
