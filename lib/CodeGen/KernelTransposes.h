// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Computes a square per thread where operands and results are contiguous along
// different coordinates.

#pragma once

#include "KernelBody.h"
#include "KernelThread.h"

namespace mlir::ddp {

/// Emits a thread's code for all operations of the kernel, none of which
/// reduces, and returns the shape of the grid. Returns nothing if there are no
/// such operands, or they cannot be read as vectors.
std::optional<LaunchShape> emitTransposes(const KernelOps &kernel);

} // namespace mlir::ddp
