// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds linalg ops on memrefs that one thread can run one after the other at
// each position, without waiting for other threads. Changes only how results
// are filled with zeros.

#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace mlir::ddp {

using KernelGroup = SmallVector<linalg::LinalgOp>;

/// Returns the linalg ops of a function in groups for emitKernelBody().
/// checkKernel() must accept them, and they must have iterations. Between the
/// operations of a group there are no others with effects. With `isEntry`,
/// memory that an argument points to is only accessed through this argument if
/// the function writes it.
SmallVector<KernelGroup> groupForKernels(func::FuncOp function, bool isEntry);

/// Replaces a runtime call that zeroes the initial values of the next reduction
/// by a linalg.fill, which needs no launch there.
void absorbZeros(func::FuncOp function);

} // namespace mlir::ddp
