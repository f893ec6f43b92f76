//===- KernelBody.h - what a thread of a kernel does ------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Divides linalg ops on memrefs among the threads of a grid.
// `ddp-outline-gpu-kernels` decides which ops become kernels, and with which
// arguments.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_LIB_CODEGEN_KERNELBODY_H
#define DDPHOOK_LIB_CODEGEN_KERNELBODY_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"

#include <array>

namespace mlir::ddp {

/// The device's limit for blocks of a grid along y and z.
inline constexpr int64_t kMaxGrid = 65535;

/// Blocks of a grid and threads of a block, x first.
struct LaunchShape {
  std::array<int64_t, 3> grid, block;
};

/// Checks that the elements of the results of `op` can be computed each by one
/// thread; explains why if not.
LogicalResult checkKernel(linalg::LinalgOp op);

/// Replaces operations, which checkKernel() accepts, which groupForKernels()
/// put together and which have iterations, by what one thread of a grid of the
/// returned shape does. Every element is computed in the order of the plain
/// loop nests: no atomics, no barriers, and the bits of the results do not
/// depend on the shape.
LaunchShape emitKernelBody(ArrayRef<linalg::LinalgOp> ops);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_CODEGEN_KERNELBODY_H
