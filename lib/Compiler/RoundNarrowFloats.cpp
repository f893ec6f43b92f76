// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// MLIR's passes that compute a narrow type in a wider one mark the casts around
// each operation as contractible. The cast back and the next cast then fold,
// and a chain of operations is rounded once instead of each time.

#define GEN_PASS_DEF_DDPROUNDNARROWFLOATSPASS
#include "ddphook/Compiler/Passes.h"

using namespace mlir;

template <typename CastOp>
static void clearContract(CastOp op) {
  if (std::optional<arith::FastMathFlags> flags = op.getFastmath())
    op.setFastmath(bitEnumClear(*flags, arith::FastMathFlags::contract));
}

namespace {
class RoundNarrowFloatsPass
    : public ddp::impl::DDPRoundNarrowFloatsPassBase<RoundNarrowFloatsPass> {
public:
  void runOnOperation() override {
    getOperation()->walk([](Operation *op) {
      if (auto extend = dyn_cast<arith::ExtFOp>(op))
        clearContract(extend);
      else if (auto truncate = dyn_cast<arith::TruncFOp>(op))
        clearContract(truncate);
    });
  }
};
} // namespace
