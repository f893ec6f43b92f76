//===- ExpandArith.cpp - arithmetic that LLVM has no instruction for ------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Upstream's arith-expand, without what it makes of maximumf and minimumf: a
// comparison and a selection, which takes -0 and +0 for equal. LLVM's intrinsics
// know that -0 is the smaller one.
//
//===----------------------------------------------------------------------===//

#include "ddphook/Target/Passes.h"

#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Transforms/WalkPatternRewriteDriver.h"

namespace mlir {
namespace ddp {
#define GEN_PASS_DEF_EXPANDARITHPASS
#include "ddphook/Target/Passes.h.inc"
} // namespace ddp
} // namespace mlir

using namespace mlir;

namespace {
class ExpandArithPass : public ddp::impl::ExpandArithPassBase<ExpandArithPass> {
public:
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    arith::populateCeilFloorDivExpandOpsPatterns(patterns);
    arith::populateExpandBFloat16Patterns(patterns);
    walkAndApplyPatterns(getOperation(), std::move(patterns));
  }
};
} // namespace
