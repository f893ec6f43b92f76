//===- UpdatedArgument.cpp - arguments that results replace ---------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See UpdatedArgument.h.
//
//===----------------------------------------------------------------------===//

#include "UpdatedArgument.h"

#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace mlir::ddp;

bufferization::MaterializeInDestinationOp
mlir::ddp::findArgumentUpdate(Value tensor) {
  auto read = tensor.getDefiningOp<bufferization::ToTensorOp>();
  if (!read || !read.getRestrict() || !read.getWritable())
    return {};
  auto argument = dyn_cast<BlockArgument>(read.getBuffer());
  if (!argument || read->getBlock() != argument.getOwner())
    return {};
  Region *body = argument.getParentRegion();
  if (!isa<FunctionOpInterface>(body->getParentOp()) || !body->hasOneBlock())
    return {};
  bufferization::MaterializeInDestinationOp update;
  for (Operation *user : argument.getUsers()) {
    if (user == read)
      continue;
    auto write = dyn_cast<bufferization::MaterializeInDestinationOp>(user);
    if (!write || update || write.getDest() != argument ||
        write->getBlock() != argument.getOwner())
      return {};
    update = write;
  }
  return update;
}
