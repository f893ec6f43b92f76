//===- UpdatedArgument.h - arguments that results replace -------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Behind `ddp-prepare-entries` an argument that the program may write is read
// through one `bufferization.to_tensor`, and a result that is the argument,
// updated, is left in it by one `bufferization.materialize_in_destination` at
// the end. In between its memory is the function's to use.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_UPDATEDARGUMENT_H
#define DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_UPDATEDARGUMENT_H

#include "ddphook/Dialect/DDP/IR/DDP.h"

#include "mlir/Dialect/Bufferization/IR/Bufferization.h"

namespace mlir::ddp {

/// If `tensor` is what such an argument holds at first, the operation that
/// leaves the result in it; else null. An argument that no result replaces is
/// left as it is, and so is one of a function of several blocks, or one that
/// something else reads or writes as memory.
bufferization::MaterializeInDestinationOp findArgumentUpdate(Value tensor);

/// Whether nothing that may lie in the memory of `value` is needed behind
/// `update`, which writes to that memory, but for what it writes itself.
bool isOverBy(Value value, bufferization::MaterializeInDestinationOp update);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_UPDATEDARGUMENT_H
