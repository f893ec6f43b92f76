// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Most tensors of a step are created where they stay: the operations of a block
// successively overwrite one buffer, and nothing needs the old contents. One
// walk finds and bufferizes these, so that One-Shot Bufferize analyses only the
// rest.

#pragma once

#include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::ddp {

/// Bufferizes in place those linalg operations of a function, and those copies
/// to memory, whose tensors are all in chains. A chain is an `alloc_tensor` or
/// a `to_tensor restrict`, and operations of the same block that each use only
/// the newest tensor. One-Shot Bufferize would decide the same at a higher
/// cost. It still handles operations that use other tensors, and all chains
/// that are linked to these.
LogicalResult
bufferizeChains(func::FuncOp function,
                const bufferization::BufferizationOptions &options,
                bufferization::BufferizationState &state);

} // namespace mlir::ddp
