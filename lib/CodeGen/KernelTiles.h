// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels whose threads compute more than elements along one coordinate: tiles
// of large contractions, and squares where operands and results are contiguous
// along different coordinates.

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

/// Does the same in squares for a kernel none of whose operations reduces.
/// Returns nothing if there are no such operands, or they cannot be read as
/// vectors.
std::optional<LaunchShape> emitTransposes(const KernelOps &kernel);

} // namespace mlir::ddp
