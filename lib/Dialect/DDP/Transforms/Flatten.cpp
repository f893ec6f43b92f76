//===- Flatten.cpp ---------------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-flatten: buckets become 1-D tensors.
//
//===----------------------------------------------------------------------===//

#include "ddphook/Dialect/DDP/Transforms/Passes.h"

namespace mlir::ddp {
#define GEN_PASS_DEF_DDPFLATTENPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h.inc"
} // namespace mlir::ddp

using namespace mlir;
using namespace mlir::ddp;

static Type flatten(Type type) {
  if (auto bucket = dyn_cast<BucketType>(type))
    return bucket.getFlatType();
  return type;
}

static void flattenExtract(ExtractOp op) {
  auto bucket = cast<BucketType>(op.getBucket().getType());
  OpBuilder builder(op);
  auto getIndex = [&](int64_t value) -> OpFoldResult {
    return builder.getIndexAttr(value);
  };
  RankedTensorType type = cast<BucketType>(op.getType()).getFlatType();
  // Nothing begins nowhere: the end of a tensor is out of bounds.
  int64_t offset = type.getNumElements() == 0
                       ? 0
                       : bucket.getOffset(op.getMembers().front());
  // The operand's type is changed when its own definition is visited.
  auto source = UnrealizedConversionCastOp::create(
      builder, op.getLoc(), TypeRange(bucket.getFlatType()), op.getBucket());
  Value slice = tensor::ExtractSliceOp::create(
      builder, op.getLoc(), type, source.getResult(0), {getIndex(offset)},
      {getIndex(type.getNumElements())}, {getIndex(1)});
  auto result = UnrealizedConversionCastOp::create(
      builder, op.getLoc(), TypeRange(op.getType()), slice);
  op.replaceAllUsesWith(result.getResult(0));
  op.erase();
}

namespace {
struct FlattenPass : public ddp::impl::DDPFlattenPassBase<FlattenPass> {
  using DDPFlattenPassBase::DDPFlattenPassBase;

  void runOnOperation() override {
    SmallVector<ExtractOp> extracts;
    getOperation().walk([&](ExtractOp op) { extracts.push_back(op); });
    llvm::for_each(extracts, flattenExtract);

    // Types are changed in place: every operation that can hold a bucket is
    // either ours or takes any type.
    getOperation().walk([&](Operation *op) {
      for (Value result : op->getResults())
        result.setType(flatten(result.getType()));
      for (Region &region : op->getRegions())
        for (Block &block : region)
          for (Value argument : block.getArguments())
            argument.setType(flatten(argument.getType()));
      if (auto function = dyn_cast<FunctionOpInterface>(op)) {
        SmallVector<Type> arguments, results;
        llvm::append_range(
            arguments, llvm::map_range(function.getArgumentTypes(), flatten));
        llvm::append_range(results,
                           llvm::map_range(function.getResultTypes(), flatten));
        function.setType(function.cloneTypeWith(arguments, results));
      }
    });
    getOperation().walk([&](UnrealizedConversionCastOp cast) {
      if (cast.getNumOperands() == 1 &&
          cast.getOperandTypes() == cast.getResultTypes()) {
        cast.replaceAllUsesWith(cast.getOperands());
        cast.erase();
      }
    });
  }
};
} // namespace
