// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-set-topology: gives process groups the topology that an option names.

#define GEN_PASS_DEF_DDPSETTOPOLOGYPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
struct SetTopologyPass
    : public ddp::impl::DDPSetTopologyPassBase<SetTopologyPass> {
  using DDPSetTopologyPassBase::DDPSetTopologyPassBase;

  void runOnOperation() override {
    for (auto group : getOperation().getOps<ProcessGroupOp>())
      if (!group.getTopology() && !group.getPlacement())
        group.setTopology(topology.getValue());
  }
};
} // namespace
