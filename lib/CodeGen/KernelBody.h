// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Distributes linalg ops on memrefs over the threads of a grid.
// `ddp-outline-gpu-kernels` decides which ops become kernels, and with which
// arguments.

#pragma once

#include "mlir/Dialect/Linalg/IR/Linalg.h"

#include <array>

namespace mlir::ddp {

/// The device's limit for blocks of a grid along y and z.
inline constexpr int64_t kMaxGrid = 65535;

/// Blocks of a grid and threads of a block, x first.
struct LaunchShape {
  std::array<int64_t, 3> grid, block;
};

/// Checks that one thread can compute each element of the results of `op`;
/// emits an error if not.
LogicalResult checkKernel(linalg::LinalgOp op);

/// Replaces operations by the code of one thread and returns the shape of the
/// grid. checkKernel() must accept the operations, groupForKernels() must have
/// grouped them, and they must have iterations. Every element is computed in
/// the order of the plain loop nests: there are no atomics or barriers, and the
/// results' bits do not depend on the shape.
LaunchShape emitKernelBody(ArrayRef<linalg::LinalgOp> ops);

} // namespace mlir::ddp
