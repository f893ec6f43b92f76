// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Keeps compiled modules free of `memrefCopy`. Leaves contiguous copies alone:
// they become `memcpy`.

#include "mlir/Dialect/Linalg/Utils/Utils.h"
#include "mlir/Dialect/MemRef/Utils/MemRefUtils.h"
#include "mlir/IR/PatternMatch.h"

#define GEN_PASS_DEF_DDPEXPANDCOPIESPASS
#include "ddphook/Compiler/Passes.h"

using namespace mlir;

namespace {
/// Returns true if memref.copy becomes a memcpy for this side's layout.
bool isContiguous(MemRefType memref) {
  return memref.getLayout().isIdentity() ||
         (memref.hasStaticShape() && memref.getNumElements() > 0 &&
          memref::isStaticShapeAndContiguousRowMajor(memref));
}

struct ExpandCopiesPass
    : public ddp::impl::DDPExpandCopiesPassBase<ExpandCopiesPass> {
  void runOnOperation() override {
    IRRewriter rewriter(&getContext());
    getOperation().walk([&](memref::CopyOp copy) {
      auto source = dyn_cast<MemRefType>(copy.getSource().getType());
      auto target = dyn_cast<MemRefType>(copy.getTarget().getType());
      if (!source || !target || (isContiguous(source) && isContiguous(target)))
        return;
      rewriter.setInsertionPoint(copy);
      linalg::makeMemRefCopyOp(rewriter, copy.getLoc(), copy.getSource(),
                               copy.getTarget());
      rewriter.eraseOp(copy);
    });
  }
};
} // namespace
