// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-check-no-alloc: proves that a step neither allocates nor copies.

#define GEN_PASS_DEF_DDPCHECKNOALLOCPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
struct CheckNoAllocPass
    : public ddp::impl::DDPCheckNoAllocPassBase<CheckNoAllocPass> {
  void runOnOperation() override {
    markAllAnalysesPreserved();
    // Diagnostics cost more than the walk, so report only the first few.
    constexpr unsigned maxReported = 8;
    unsigned numFound = 0;
    getOperation().walk([&](Operation *op) {
      if (!isa<memref::AllocOp, memref::AllocaOp, memref::DeallocOp,
               memref::ReallocOp, memref::CopyOp, bufferization::CloneOp>(op))
        return;
      if (++numFound <= maxReported)
        op->emitOpError() << "expected a step without allocations and copies";
    });
    if (numFound > maxReported)
      emitError(getOperation().getLoc())
          << "found " << numFound << " allocations and copies in total";
    if (numFound != 0)
      signalPassFailure();
  }
};
} // namespace
