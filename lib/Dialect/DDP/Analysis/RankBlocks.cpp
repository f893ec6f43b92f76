// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Regions of several blocks: finds the branches that decide about each block,
// and the values that meet in it.

#include "RankAnalysis.h"

#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/IR/Dominance.h"
#include "llvm/ADT/PostOrderIterator.h"

using namespace mlir;
using namespace mlir::ddp;

ControlFlow::ControlFlow(Region &region) {
  llvm::append_range(order,
                     llvm::ReversePostOrderTraversal<Block *>(&region.front()));
  llvm::SmallPtrSet<Block *, 8> visited;
  for (Block *block : order) {
    visited.insert(block);
    for (Block *successor : block->getSuccessors())
      hasCycles |= visited.contains(successor);
  }
  if (region.hasOneBlock())
    return;
  // A branch decides about the blocks on its paths, up to the block where all
  // of them meet again (Ferrante, Ottenstein and Warren, 1987).
  PostDominanceInfo postDominance(region.getParentOp());
  for (Block *block : order) {
    if (block->getNumSuccessors() < 2)
      continue;
    auto *meeting = postDominance.getNode(block)->getIDom();
    for (Block *successor : block->getSuccessors())
      for (auto *node = postDominance.getNode(successor);
           node && node != meeting && node->getBlock();
           node = node->getIDom()) {
        auto &branches = deciding[node->getBlock()];
        if (!llvm::is_contained(branches, block->getTerminator()))
          branches.push_back(block->getTerminator());
      }
  }
}

const ControlFlow &RankAnalysis::getControlFlow(Region &region) {
  std::unique_ptr<ControlFlow> &known = controlFlows[&region];
  if (!known)
    known = std::make_unique<ControlFlow>(region);
  return *known;
}

/// Returns the groups within which all ranks take the same branch.
RankMask RankAnalysis::getChoice(Operation *terminator) {
  if (terminator->getNumSuccessors() < 2)
    return kAllRanks;
  if (auto branch = dyn_cast<cf::CondBranchOp>(terminator))
    return facts.lookup(branch.getCondition()).uniform;
  if (auto branch = dyn_cast<cf::SwitchOp>(terminator))
    return facts.lookup(branch.getFlag()).uniform;
  RankMask mask = terminator->getNumOperands() == 0 ? 0 : kAllRanks;
  for (Value operand : terminator->getOperands())
    mask &= facts.lookup(operand).uniform;
  return mask;
}

void RankAnalysis::visitBlocks(Region &region, const RankControl &control) {
  const ControlFlow &flow = getControlFlow(region);
  struct State {
    /// The groups within which all ranks that enter the region come here.
    RankMask reached = kAllRanks;
    Operation *cause = nullptr;
    bool isVisited = false;
    RankMemory in, out;
  };
  llvm::DenseMap<Block *, State> states;
  for (Block *block : flow.order)
    states[block];
  states[&region.front()].in = memory;

  bool changed = true;
  while (changed) {
    changed = false;
    for (Block *block : flow.order) {
      State &state = states[block];
      RankMask reached = kAllRanks;
      for (Operation *terminator : flow.deciding.lookup(block)) {
        RankMask decided =
            states[terminator->getBlock()].reached & getChoice(terminator);
        if (decided != kAllRanks && !state.cause)
          state.cause = terminator;
        reached &= decided;
      }
      bool isNew = !state.isVisited || reached != state.reached;
      state.reached = reached;

      // Join the values from the predecessors. If these pass different values,
      // all ranks must come from the same predecessor.
      RankMask same = kAllRanks;
      SmallVector<std::optional<RankFact>> joined(block->getNumArguments());
      SmallVector<Value> firstValues(block->getNumArguments());
      std::optional<RankMemory> in;
      if (block->isEntryBlock())
        in = state.in;
      for (auto it = block->pred_begin(); it != block->pred_end(); ++it) {
        auto from = states.find(*it);
        if (from == states.end() || !from->second.isVisited)
          continue;
        Operation *terminator = (*it)->getTerminator();
        same &= from->second.reached & getChoice(terminator);
        if (in)
          in->join(from->second.out, same);
        else
          in = from->second.out;
        auto branch = dyn_cast<BranchOpInterface>(terminator);
        for (BlockArgument argument : block->getArguments()) {
          unsigned number = argument.getArgNumber();
          Value value =
              branch
                  ? branch.getSuccessorOperands(it.getSuccessorIndex())[number]
                  : Value();
          RankFact fact =
              value ? facts.lookup(value) : facts.createUnknown(argument);
          if (joined[number]) {
            joined[number] = facts.join(*joined[number], fact);
            if (value != firstValues[number])
              joined[number]->uniform &= same;
          } else {
            joined[number] = fact;
            firstValues[number] = value;
          }
        }
      }
      if (!block->isEntryBlock())
        for (auto [argument, fact] : llvm::zip(block->getArguments(), joined)) {
          RankFact now = fact.value_or(RankFact());
          now.uniform &= reached;
          isNew |= facts.update(argument, now);
        }
      if (in && !(*in == state.in)) {
        isNew = true;
        state.in = *in;
      }
      if (!isNew && !flow.hasCycles)
        continue;
      changed |= isNew && flow.hasCycles;
      state.isVisited = true;
      memory = state.in;
      RankControl inside{control.mask & reached,
                         reached == kAllRanks ? control.op : state.cause,
                         &control};
      visitBlock(*block, inside);
      // Ranks that leave a loop in different iterations bring different values.
      if (reached != kAllRanks)
        for (Operation &op : *block)
          for (Value result : op.getResults())
            facts[result].uniform &= reached;
      state.out = memory;
      if (changed && numVisited > 2 * maxVisited) {
        exhausted.insert(region.getParentOp());
        changed = false;
      }
    }
  }
  std::optional<RankMemory> out;
  for (Block *block : flow.order) {
    if (block->getNumSuccessors() != 0)
      continue;
    leftBy[block->getTerminator()] = states[block].reached;
    if (out)
      out->join(states[block].out, states[block].reached);
    else
      out = states[block].out;
  }
  memory = out.value_or(memory);
}
