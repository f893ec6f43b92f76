//===- Localize.h - the program of one rank ---------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// JAX writes the program of all devices, with the part that one device runs
// inside of sdy.manual_computation. We compile the program that each rank runs.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_CONVERSION_STABLEHLOTODDP_LOCALIZE_H
#define DDPHOOK_LIB_CONVERSION_STABLEHLOTODDP_LOCALIZE_H

#include "Shardings.h"

namespace mlir::ddp {

/// Makes of each sdy.manual_computation the operations in it, and of each
/// function around one a function of one rank's tensors, and removes what else
/// Shardy's dialect says. Reports a program that says that tensors are split,
/// but not how to compute with their parts.
LogicalResult localize(ModuleOp module, const Meshes &meshes);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_CONVERSION_STABLEHLOTODDP_LOCALIZE_H
