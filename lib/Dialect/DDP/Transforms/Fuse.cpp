//===- Fuse.cpp ------------------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-fuse: lets one runtime call do what several operations say.
//
//===----------------------------------------------------------------------===//

#include "ddphook/Dialect/DDP/Transforms/Passes.h"

namespace mlir::ddp {
#define GEN_PASS_DEF_DDPFUSEPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h.inc"
} // namespace mlir::ddp

using namespace mlir;
using namespace mlir::ddp;

/// cast(all_reduce(cast(x : T → 16 bit)) → T)  →  all_reduce wire (x)
static void fuseCasts(CastOp decompress) {
  if (!decompress.getResult() || decompress.getDestination())
    return;
  auto reduce = decompress.getInput().getDefiningOp<AllReduceOp>();
  if (!reduce || reduce.getWire() || reduce.getDestination() ||
      !reduce.getResult().hasOneUse())
    return;
  Type wireType = getElementTypeOf(reduce.getInput().getType());
  if (!isa<Float16Type, BFloat16Type>(wireType))
    return;
  auto compress = reduce.getInput().getDefiningOp<CastOp>();
  if (!compress || compress.getDestination() ||
      compress.getInput().getType() != decompress.getResult().getType())
    return;
  // In the place of the reduction: the order of collectives stays.
  OpBuilder builder(reduce);
  auto fused = AllReduceOp::create(
      builder, reduce.getLoc(), decompress.getResult().getType(),
      reduce.getReductionAttr(), compress.getInput(), reduce.getGroupAttr(),
      TypeAttr::get(wireType), reduce.getBucketNameAttr(),
      /*destination=*/Value());
  fused->setDiscardableAttrs(reduce->getDiscardableAttrDictionary());
  decompress.getResult().replaceAllUsesWith(fused.getResult());
  decompress.erase();
  reduce.erase();
  if (compress->use_empty())
    compress.erase();
}

namespace {
struct FusePass : public ddp::impl::DDPFusePassBase<FusePass> {
  using DDPFusePassBase::DDPFusePassBase;

  void runOnOperation() override {
    SmallVector<CastOp> casts;
    getOperation()->walk([&](CastOp op) {
      if (op.getInput().getDefiningOp<AllReduceOp>())
        casts.push_back(op);
    });
    llvm::for_each(casts, fuseCasts);
  }
};
} // namespace
