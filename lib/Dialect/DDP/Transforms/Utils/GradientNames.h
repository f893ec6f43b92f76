//===- GradientNames.h - names of gradients ---------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Names by which states and checkpoints know gradients, whatever bucket they
// are in. Rules and examples: docs/checkpoints.md.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_DIALECT_DDP_TRANSFORMS_UTILS_GRADIENTNAMES_H
#define DDPHOOK_LIB_DIALECT_DDP_TRANSFORMS_UTILS_GRADIENTNAMES_H

#include "ddphook/Dialect/DDP/IR/DDP.h"

#include "mlir/IR/BuiltinOps.h"

namespace mlir::ddp {

/// Gives every reduction of a tensor that has no `ddp.name` one, and every
/// named bucket without names of its gradients those. All names of the module
/// then differ; an error where those that are written in it do not.
LogicalResult nameGradients(ModuleOp module);

/// Names for the parameters that are averaged, by the same rules, each another.
llvm::DenseMap<Operation *, StringAttr> nameAverages(ModuleOp module);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_DIALECT_DDP_TRANSFORMS_UTILS_GRADIENTNAMES_H
