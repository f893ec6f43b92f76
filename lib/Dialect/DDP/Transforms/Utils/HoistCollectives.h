// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The first half of `ddp-overlap`.

#pragma once

#include "../../Analysis/Dependences.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

namespace mlir::ddp {

/// Moves every collective of the block, with the packing before it, up to the
/// point where its operands are complete and, if it replaces their contents or
/// packs them, all earlier readers have read them. Operations that read
/// operands from outside of the block or tensors in memory do not move.
void hoistCollectives(Block &block, const TensorsInMemory &inMemory);

/// Starts all-reduces of the then branch before `choice`, on its condition, and
/// leaves waits in both branches. Their operands must be complete before
/// `choice`, and only the else branch may use them later. If the then branch
/// only reduces an operand that has just been completed, the start follows
/// `choice` instead, with waits in the branches of another `scf.if`, so that
/// the else branch is not delayed.
void hoistFromBranch(scf::IfOp choice,
                     function_ref<bool(Operation *)> takesTime);

} // namespace mlir::ddp
