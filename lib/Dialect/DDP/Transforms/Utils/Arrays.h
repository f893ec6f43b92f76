// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Creates the operations by which passes copy tensors, take slices of them, and
// read and write them in memory; and runs of their elements.

#pragma once

#include "ddphook/Dialect/DDP/IR/DDP.h"

#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace mlir::ddp {

/// Copies a tensor to separate memory.
inline Value createCopy(OpBuilder &builder, Location loc, Value tensor) {
  return bufferization::AllocTensorOp::create(
      builder, loc, cast<RankedTensorType>(tensor.getType()),
      /*dynamicSizes=*/ValueRange(), /*copy=*/tensor);
}

/// Returns the contents of `memory`, which nothing else reads or writes as
/// memory meanwhile, as a tensor.
inline Value createRead(OpBuilder &builder, Location loc, Type type,
                        Value memory, bool isWritable) {
  return bufferization::ToTensorOp::create(builder, loc, type, memory,
                                           /*restrict=*/true, isWritable);
}

/// Writes a tensor to `memory`. The write is not `restrict`, since the memory
/// has another alias.
inline void createWrite(OpBuilder &builder, Location loc, Value tensor,
                        Value memory) {
  bufferization::MaterializeInDestinationOp::create(
      builder, loc, TypeRange(), tensor, memory, /*restrict=*/false,
      /*writable=*/true);
}

/// Returns `size` elements of a 1-D tensor. Returns the whole tensor itself: a
/// slice would get another layout.
inline Value createSlice(OpBuilder &builder, Location loc, Value flat,
                         int64_t offset, int64_t size) {
  auto type = RankedTensorType::get({size}, getElementTypeOf(flat.getType()));
  if (flat.getType() == type)
    return flat;
  auto getIndex = [&](int64_t value) -> OpFoldResult {
    return builder.getIndexAttr(value);
  };
  // An empty slice gets offset 0, because the end of a tensor is out of bounds.
  return tensor::ExtractSliceOp::create(builder, loc, type, flat,
                                        {getIndex(size == 0 ? 0 : offset)},
                                        {getIndex(size)}, {getIndex(1)});
}

/// Adjacent elements of a tensor, in row-major order.
struct ElementRun {
  Value source;
  int64_t offset, size;

  int64_t getEnd() const { return offset + size; }
  bool isWhole() const {
    return offset == 0 && size == getNumElementsOf(source.getType());
  }
};

/// Appends a run, merged with the last one if they are adjacent.
inline void appendRun(SmallVectorImpl<ElementRun> &runs,
                      const ElementRun &run) {
  if (!runs.empty() && runs.back().source == run.source &&
      runs.back().getEnd() == run.offset)
    runs.back().size += run.size;
  else
    runs.push_back(run);
}

} // namespace mlir::ddp
