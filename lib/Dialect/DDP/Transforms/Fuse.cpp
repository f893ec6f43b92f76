//===- Fuse.cpp ------------------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-fuse: lets one runtime call do what several operations say.
//
//===----------------------------------------------------------------------===//

#include "ddphook/Dialect/DDP/Transforms/Passes.h"

#include "mlir/IR/PatternMatch.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace mlir::ddp {
#define GEN_PASS_DEF_DDPFUSEPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h.inc"
} // namespace mlir::ddp

using namespace mlir;
using namespace mlir::ddp;

namespace {
/// cast(all_reduce(cast(x : T → 16 bit)) → T)  →  all_reduce wire (x)
struct FuseCasts : public OpRewritePattern<CastOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(CastOp decompress,
                                PatternRewriter &rewriter) const override {
    if (!decompress.getResult() || decompress.getDestination())
      return failure();
    auto reduce = decompress.getInput().getDefiningOp<AllReduceOp>();
    if (!reduce || reduce.getWire() || reduce.getDestination() ||
        !reduce.getResult().hasOneUse())
      return failure();
    Type wireType = getElementTypeOf(reduce.getInput().getType());
    if (!isa<Float16Type, BFloat16Type>(wireType))
      return failure();
    auto compress = reduce.getInput().getDefiningOp<CastOp>();
    if (!compress || compress.getDestination() ||
        compress.getInput().getType() != decompress.getResult().getType())
      return failure();
    // In the place of the reduction: the order of collectives stays.
    rewriter.setInsertionPoint(reduce);
    auto fused = AllReduceOp::create(
        rewriter, reduce.getLoc(), decompress.getResult().getType(),
        reduce.getReductionAttr(), compress.getInput(), reduce.getGroupAttr(),
        TypeAttr::get(wireType), reduce.getBucketNameAttr(),
        /*destination=*/Value());
    fused->setDiscardableAttrs(reduce->getDiscardableAttrDictionary());
    rewriter.replaceOp(decompress, fused.getResult());
    rewriter.eraseOp(reduce);
    if (compress->use_empty())
      rewriter.eraseOp(compress);
    return success();
  }
};

struct FusePass : public ddp::impl::DDPFusePassBase<FusePass> {
  using DDPFusePassBase::DDPFusePassBase;
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<FuseCasts>(&getContext());
    if (failed(
            applyPatternsGreedily(getOperation(), std::move(patterns),
                                  GreedyRewriteConfig().enableFolding(false))))
      signalPassFailure();
  }
};
} // namespace
