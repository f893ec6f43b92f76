// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-pin-block-arguments: gives the tensors that blocks pass to each other
// separate memory. A block may run again, and then overwrites its buffers,
// which have fixed addresses. A tensor that is still needed as a block argument
// must not be in such a buffer.

#include "../Analysis/MemoryUses.h"
#include "../Analysis/ProgramWalk.h"
#include "Utils/Arrays.h"
#include "Utils/InPlaceChain.h"

#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"

#define GEN_PASS_DEF_DDPPINBLOCKARGUMENTSPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
/// A block argument that is a tensor: its memory, and the tensor in it.
struct Pinned {
  unsigned number;
  Value buffer;
  Value tensor;
};

/// The pinned arguments of a block, in ascending order.
using PinnedArguments = SmallVector<Pinned>;
} // namespace

static LogicalResult checkArgument(BlockArgument argument) {
  auto type = dyn_cast<RankedTensorType>(argument.getType());
  if (type && type.hasStaticShape())
    return success();
  return emitError(argument.getLoc())
         << "expected block argument " << argument.getArgNumber()
         << " to be a tensor of static shape, but got " << argument.getType();
}

/// Checks that all edges into a block can be rewritten.
static LogicalResult checkPredecessors(Block &block) {
  for (Block *predecessor : block.getPredecessors())
    if (!isa<cf::BranchOp, cf::CondBranchOp, cf::SwitchOp>(
            predecessor->getTerminator()))
      return predecessor->getTerminator()->emitOpError()
             << "expected a cf branch to a block with tensor arguments";
  return success();
}

/// Gives each tensor argument of `block` a buffer, allocated in the region's
/// first block, and makes all uses read it.
static PinnedArguments pinArguments(Block &block) {
  PinnedArguments pinned;
  OpBuilder atEntry = OpBuilder::atBlockBegin(&block.getParent()->front());
  OpBuilder atStart = OpBuilder::atBlockBegin(&block);
  for (BlockArgument argument : block.getArguments()) {
    auto type = dyn_cast<RankedTensorType>(argument.getType());
    if (!type)
      continue;
    Location loc = argument.getLoc();
    Value buffer = memref::AllocOp::create(atEntry, loc, getStateMemory(type));
    Value tensor = createRead(atStart, loc, type, buffer, /*isWritable=*/false);
    argument.replaceAllUsesWith(tensor);
    pinned.push_back({argument.getArgNumber(), buffer, tensor});
  }
  return pinned;
}

/// Adds a block on the edge from `branch` to its successor `number`, unless
/// that is its only successor. Returns the branch that ends the edge.
static Operation *splitWay(Operation *branch, unsigned number) {
  if (branch->getNumSuccessors() == 1)
    return branch;
  Block *target = branch->getSuccessor(number);
  OpBuilder builder(branch->getContext());
  Block *between = builder.createBlock(
      target->getParent(), std::next(branch->getBlock()->getIterator()));
  SuccessorOperands operands =
      cast<BranchOpInterface>(branch).getSuccessorOperands(number);
  auto way = cf::BranchOp::create(builder, branch->getLoc(), target,
                                  operands.getForwardedOperands());
  operands.getMutableForwardedOperands().clear();
  branch->setSuccessor(between, number);
  return way;
}

/// Makes the branch write its operands to the buffers of its successor. Values
/// that may be in one of those buffers are saved first.
static void writeArguments(Operation *branch, const PinnedArguments &pinned) {
  MutableOperandRange operands = cast<BranchOpInterface>(branch)
                                     .getSuccessorOperands(0)
                                     .getMutableForwardedOperands();
  OpBuilder builder(branch);
  Location loc = branch->getLoc();
  SmallVector<bufferization::MaterializeInDestinationOp> writes;
  for (const Pinned &argument : pinned)
    writes.push_back(bufferization::MaterializeInDestinationOp::create(
        builder, loc, TypeRange(), operands[argument.number].get(),
        argument.buffer, /*restrict=*/false, /*writable=*/true));
  for (const Pinned &argument : llvm::reverse(pinned))
    operands.erase(argument.number);

  llvm::SetVector<Operation *> endangered;
  for (auto [argument, own] : llvm::zip(pinned, writes)) {
    WalkResult result =
        visitMemoryUses(argument.tensor, [&, own = own](OpOperand &use) {
          Operation *user = use.getOwner();
          if (user != own && llvm::is_contained(writes, user))
            endangered.insert(user);
          return WalkResult::advance();
        });
    if (result.wasInterrupted())
      endangered.insert_range(writes);
  }
  if (endangered.empty())
    return;
  builder.setInsertionPoint(writes.front());
  for (Operation *write : endangered)
    write->setOperand(0, createCopy(builder, loc, write->getOperand(0)));
}

/// True if `use` may write to memory that is older than its block, or lets
/// others write there. Branches of cf copy their operands.
static bool mayOverwriteFromOutside(OpOperand &use) {
  return isa<RankedTensorType>(use.get().getType()) &&
         !isa<BranchOpInterface>(use.getOwner()) && !isOnlyRead(use) &&
         !use.get().getDefiningOp<tensor::EmptyOp>();
}

static void save(OpOperand &use) {
  OpBuilder builder(use.getOwner());
  replaceUse(use, createCopy(builder, use.getOwner()->getLoc(), use.get()));
}

/// Copies values from other blocks that a block in a cycle may overwrite, since
/// it needs them again when it runs again. One-Shot Bufferize does not know
/// loops of blocks.
static void saveFromOutside(Block &block) {
  block.walk([&](Operation *op) {
    for (OpOperand &use : op->getOpOperands()) {
      Block *home = use.get().getParentBlock();
      bool isInside =
          home == &block || block.findAncestorOpInBlock(*home->getParentOp());
      if (!isInside && mayOverwriteFromOutside(use))
        save(use);
    }
  });
}

/// Copies a value that a block other than the entry may overwrite, if the value
/// may alias a function argument. One-Shot Bufferize assumes that every write
/// outside of an argument's block happens before the argument exists, and lets
/// it overwrite data that is still needed.
static void saveArguments(Region &region) {
  Block &entry = region.front();
  llvm::SetVector<OpOperand *> uses;
  bool isKnown = true;
  for (BlockArgument argument : entry.getArguments()) {
    if (!isa<RankedTensorType>(argument.getType()))
      continue;
    WalkResult result = visitMemoryUses(argument, [&](OpOperand &use) {
      Operation *user = use.getOwner();
      if (isa<BranchOpInterface>(user) || isReturn(user))
        return WalkResult::skip();
      if (entry.findAncestorOpInBlock(*user) || !mayOverwriteFromOutside(use))
        return WalkResult::advance();
      uses.insert(&use);
      return WalkResult::skip();
    });
    isKnown &= !result.wasInterrupted();
  }
  for (OpOperand *use : uses)
    save(*use);
  if (!isKnown)
    for (Block &block : llvm::drop_begin(region))
      saveFromOutside(block);
}

static LogicalResult pin(Region &region) {
  llvm::MapVector<Block *, PinnedArguments> pinned;
  for (Block &block : llvm::drop_begin(region)) {
    if (llvm::none_of(block.getArgumentTypes(), llvm::IsaPred<TensorType>))
      continue;
    for (BlockArgument argument : block.getArguments())
      if (isa<TensorType>(argument.getType()) &&
          failed(checkArgument(argument)))
        return failure();
    if (failed(checkPredecessors(block)))
      return failure();
    pinned[&block];
  }
  for (auto &[block, arguments] : pinned)
    arguments = pinArguments(*block);
  for (auto &[block, arguments] : pinned) {
    // Collect all edges into the block before adding blocks to them.
    SmallVector<std::pair<Operation *, unsigned>> ways;
    for (auto it = block->pred_begin(); it != block->pred_end(); ++it)
      ways.push_back({(*it)->getTerminator(), it.getSuccessorIndex()});
    for (auto [branch, number] : ways)
      writeArguments(splitWay(branch, number), arguments);
    for (const Pinned &argument : llvm::reverse(arguments))
      block->eraseArgument(argument.number);
  }
  return success();
}

namespace {
struct PinBlockArgumentsPass
    : public ddp::impl::DDPPinBlockArgumentsPassBase<PinBlockArgumentsPass> {
  void runOnOperation() override {
    SmallVector<Region *> regions;
    walkProgram(getOperation(), [&](Operation *op) {
      for (Region &region : op->getRegions())
        if (!region.empty() && !region.hasOneBlock())
          regions.push_back(&region);
    });
    if (regions.empty())
      return markAllAnalysesPreserved();
    for (Region *region : regions) {
      saveArguments(*region);
      for (Block &block : *region)
        if (block.isReachable(&block))
          saveFromOutside(block);
      if (failed(pin(*region)))
        return signalPassFailure();
    }
  }
};
} // namespace
