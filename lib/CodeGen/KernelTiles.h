//===- KernelTiles.h - contractions in kernels ------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gives a thread a tile of the elements of a large contraction.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_LIB_CODEGEN_KERNELTILES_H
#define DDPHOOK_LIB_CODEGEN_KERNELTILES_H

#include "Contraction.h"
#include "KernelBody.h"
#include "KernelThread.h"

namespace mlir::ddp {

/// Emits the code of a thread for all operations of the kernel, of which
/// `product` is the contraction; the shape of the grid. None if the contraction
/// is better off with one element a thread.
std::optional<LaunchShape> emitTiles(const KernelOps &kernel,
                                     const KernelOp &product,
                                     const Contraction &contraction);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_CODEGEN_KERNELTILES_H
