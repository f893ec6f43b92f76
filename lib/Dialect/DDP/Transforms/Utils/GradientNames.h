// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Names by which states and checkpoints identify gradients, whatever bucket
// they are in. docs/checkpoints.md has the rules and examples.

#pragma once

#include "ddphook/Dialect/DDP/IR/DDP.h"

namespace mlir::ddp {

/// Gives a `ddp.name` to every reduction of a tensor or of memory and to every
/// reduce-scatter that has none, and gradient names to every named bucket that
/// has none. All names of the module then differ. Fails if two names written in
/// the module are equal.
LogicalResult nameGradients(ModuleOp module);

/// Returns the names of the members of a bucket that only has a name itself:
/// NAME.0 and so on.
SmallVector<Attribute> getMemberNames(StringAttr name, BucketType bucket);

/// Returns distinct names for the averaged parameters, by the same rules.
llvm::DenseMap<Operation *, StringAttr> nameAverages(ModuleOp module);

} // namespace mlir::ddp
