// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Computes large contractions in tiles, one per thread.

#pragma once

#include "Contraction.h"
#include "KernelBody.h"
#include "KernelThread.h"

namespace mlir::ddp {

/// Emits a thread's code for all operations of the kernel, including the
/// contraction `product`, and returns the shape of the grid. Returns nothing if
/// one element per thread is better.
std::optional<LaunchShape> emitTiles(const KernelOps &kernel,
                                     const KernelOp &product,
                                     const Contraction &contraction);

} // namespace mlir::ddp
