//===- KernelTransposes.h - transposed arrays in kernels --------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gives a thread a square of elements, where operands are contiguous along
// another coordinate than the results.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_LIB_CODEGEN_KERNELTRANSPOSES_H
#define DDPHOOK_LIB_CODEGEN_KERNELTRANSPOSES_H

#include "KernelBody.h"
#include "KernelThread.h"

namespace mlir::ddp {

/// Emits the code of a thread for all operations of the kernel, none of which
/// reduces; the shape of the grid. None if there are no such operands, or no
/// vectors of them.
std::optional<LaunchShape> emitTransposes(const KernelOps &kernel);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_CODEGEN_KERNELTRANSPOSES_H
