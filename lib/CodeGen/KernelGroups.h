//===- KernelGroups.h - operations that share a launch ----------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds linalg ops on memrefs that one thread can run one after the other at
// each place, without waiting for other threads. Changes nothing but where a
// result is filled with zeros.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_LIB_CODEGEN_KERNELGROUPS_H
#define DDPHOOK_LIB_CODEGEN_KERNELGROUPS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace mlir::ddp {

using KernelGroup = SmallVector<linalg::LinalgOp>;

/// The linalg ops of a function, which checkKernel() accepts and which have
/// iterations, in groups for emitKernelBody(). Of the operations of a group
/// each follows the one before it with nothing between them that has effects.
/// With `isEntry`, memory that an argument points to is only accessed through
/// this argument if the function writes it.
SmallVector<KernelGroup> groupForKernels(func::FuncOp function, bool isEntry);

/// Turns calls of the runtime that set the initial values of a reduction right
/// behind them to zero back into linalg.fill, which needs no launch there.
void absorbZeros(func::FuncOp function);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_CODEGEN_KERNELGROUPS_H
