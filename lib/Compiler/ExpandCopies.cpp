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
bool isContiguous(BaseMemRefType type) {
  auto memref = dyn_cast<MemRefType>(type);
  if (!memref)
    return false;
  if (memref.getLayout().isIdentity())
    return true;
  return memref.hasStaticShape() && memref.getNumElements() > 0 &&
         memref::isStaticShapeAndContiguousRowMajor(memref);
}

class ExpandCopiesPass
    : public ddp::impl::DDPExpandCopiesPassBase<ExpandCopiesPass> {
public:
  void runOnOperation() override {
    SmallVector<memref::CopyOp> copies;
    getOperation().walk([&](memref::CopyOp copy) {
      auto source = cast<BaseMemRefType>(copy.getSource().getType());
      auto target = cast<BaseMemRefType>(copy.getTarget().getType());
      bool isRanked = isa<MemRefType>(source) && isa<MemRefType>(target);
      if (isRanked && (!isContiguous(source) || !isContiguous(target)))
        copies.push_back(copy);
    });
    IRRewriter rewriter(&getContext());
    for (memref::CopyOp copy : copies) {
      rewriter.setInsertionPoint(copy);
      linalg::makeMemRefCopyOp(rewriter, copy.getLoc(), copy.getSource(),
                               copy.getTarget());
      rewriter.eraseOp(copy);
    }
  }
};
} // namespace
