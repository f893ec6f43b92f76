//===- KernelBody.h - what a thread of a kernel does ------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Divides a linalg op on memrefs among the threads of a grid.
// `ddp-outline-gpu-kernels` decides which ops become kernels, and with which
// arguments.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_LIB_CODEGEN_KERNELBODY_H
#define DDPHOOK_LIB_CODEGEN_KERNELBODY_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"

#include <array>

namespace mlir::ddp {

/// Blocks of a grid and threads of a block, x first.
struct LaunchShape {
  std::array<int64_t, 3> grid, block;
};

/// Checks that the elements of the results of `op` can be computed each by one
/// thread; explains why if not.
LogicalResult checkKernel(linalg::LinalgOp op);

/// Replaces `op`, which checkKernel() accepts and which has iterations, by what
/// one thread of a grid of the returned shape does. Every element is computed
/// in the order of the plain loop nest: no atomics, no barriers, and the bits
/// of the result do not depend on the shape.
LaunchShape emitKernelBody(linalg::LinalgOp op);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_CODEGEN_KERNELBODY_H
