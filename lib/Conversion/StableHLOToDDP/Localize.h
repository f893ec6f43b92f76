// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// JAX writes one program for all devices; the part of one device is inside
// sdy.manual_computation. We compile the program that each rank runs.

#pragma once

#include "Shardings.h"

namespace mlir::ddp {

/// Inlines each sdy.manual_computation, gives the functions around them the
/// types of one rank's tensors, and removes other uses of Shardy's dialect.
/// Reports programs that split tensors without saying how to compute on the
/// shards.
LogicalResult localize(ModuleOp module, const Meshes &meshes);

} // namespace mlir::ddp
