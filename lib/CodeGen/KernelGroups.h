// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Groups linalg ops on memrefs into kernels. At each position, one thread runs
// the ops of a group one after another, without waiting for other threads.

#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace mlir::ddp {

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
