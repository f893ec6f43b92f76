//===- BufferizeChains.h - memory that needs no analysis --------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Most tensors of a step are made where they stay: operations of one block
// write over one buffer in turn, and nobody needs what was overwritten. One
// walk finds these, and they are bufferized here, so that One-Shot Bufferize
// analyses only the others.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_DIALECT_DDP_TRANSFORMS_UTILS_BUFFERIZECHAINS_H
#define DDPHOOK_LIB_DIALECT_DDP_TRANSFORMS_UTILS_BUFFERIZECHAINS_H

#include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::ddp {

/// Bufferizes in place the linalg operations of a function, and the copies to
/// memory, all of whose tensors lie in chains: an `alloc_tensor` or a
/// `to_tensor restrict`, and what operations of the same block make of it, each
/// of which uses the newest tensor only. One-Shot's analysis decides the same,
/// at a higher price. An operation that also uses other tensors is left to it,
/// with the chains that this operation uses and all that these are used with.
LogicalResult
bufferizeChains(func::FuncOp function,
                const bufferization::BufferizationOptions &options,
                bufferization::BufferizationState &state);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_DIALECT_DDP_TRANSFORMS_UTILS_BUFFERIZECHAINS_H
