// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Distributes linalg ops on memrefs over the threads of a grid. Finds those
// that one thread can run one after the other at each position, without waiting
// for other threads. `ddp-outline-gpu-kernels` decides with which arguments.

#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"
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

using KernelGroup = SmallVector<linalg::LinalgOp>;

/// Returns the linalg ops of a function in groups for emitKernelBody(). All
/// must have iterations and pass checkKernel(). Operations between those of a
/// group have no effect on memory. With `isEntry`, memory that is written
/// through an argument is accessed through this argument only.
SmallVector<KernelGroup> groupForKernels(func::FuncOp function, bool isEntry);

/// Replaces each runtime call that only zeroes the initial values of the next
/// reduction by a linalg.fill, which can join the reduction's kernel.
void absorbZeros(func::FuncOp function);

} // namespace mlir::ddp
