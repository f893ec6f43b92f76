//===- UpdatedArgument.h - arguments that results replace -------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// After `ddp-prepare-entries`, an argument that the program may write is read
// through one `bufferization.to_tensor`, and a result that updates the argument
// is written to it by one `bufferization.materialize_in_destination` at the
// end. In between the function may use its memory.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_UPDATEDARGUMENT_H
#define DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_UPDATEDARGUMENT_H

#include "ddphook/Dialect/DDP/IR/DDP.h"

#include "mlir/Dialect/Bufferization/IR/Bufferization.h"

namespace mlir::ddp {

/// If `tensor` is the initial contents of such an argument, returns the
/// operation that writes the result to it; otherwise null. Returns null too if
/// no result replaces the argument, if the function has several blocks, or if
/// anything else reads or writes the argument as memory.
bufferization::MaterializeInDestinationOp findArgumentUpdate(Value tensor);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_UPDATEDARGUMENT_H
