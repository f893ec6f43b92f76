// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-fold-results: drops results that are equal to an argument or to another
// result. On tensors the caller can use the other value instead; on memrefs the
// results would be two buffers, one of them a copy. A function that has to keep
// its interface makes that copy here.

#include "Utils/Arrays.h"
#include "Utils/CallGraph.h"

#define GEN_PASS_DEF_DDPFOLDRESULTSPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

/// Returns the argument that every return passes as result `number`, or null.
static BlockArgument findArgument(ArrayRef<func::ReturnOp> returns,
                                  unsigned number) {
  BlockArgument found;
  for (func::ReturnOp op : returns) {
    auto argument = dyn_cast<BlockArgument>(op.getOperand(number));
    if (!argument || !argument.getOwner()->isEntryBlock() ||
        (found && argument != found))
      return {};
    found = argument;
  }
  return found;
}

/// Drops results whose values the callers have. Returns true if there were any.
static bool foldResults(func::FuncOp function,
                        MutableArrayRef<func::CallOp> calls) {
  SmallVector<func::ReturnOp> returns = getReturns(function);
  if (returns.empty())
    return false;
  llvm::BitVector erased(function.getNumResults());
  SmallVector<unsigned> firstEqual = findFirstEqual(returns, erased.size());
  for (unsigned number = 0; number < erased.size(); ++number) {
    BlockArgument argument = findArgument(returns, number);
    if (!argument && firstEqual[number] == number)
      continue;
    erased.set(number);
    for (func::CallOp call : calls)
      call.getResult(number).replaceAllUsesWith(
          argument ? call.getOperand(argument.getArgNumber())
                   : call.getResult(firstEqual[number]));
  }
  if (erased.none())
    return false;
  eraseResults(function, erased);
  for (func::CallOp &call : calls)
    replaceCall(call, erased, /*newOperands=*/{});
  return true;
}

/// Copies values that are returned twice, because One-Shot Bufferize treats two
/// results of a call as separate memory. Returns true if there were any.
static bool copyEqualResults(func::FuncOp function) {
  SmallVector<func::ReturnOp> returns = getReturns(function);
  SmallVector<unsigned> firstEqual =
      findFirstEqual(returns, function.getNumResults());
  bool changed = false;
  for (func::ReturnOp op : returns)
    for (OpOperand &operand : op->getOpOperands()) {
      if (!isa<RankedTensorType>(operand.get().getType()) ||
          firstEqual[operand.getOperandNumber()] == operand.getOperandNumber())
        continue;
      OpBuilder builder(op);
      operand.set(createCopy(builder, op.getLoc(), operand.get()));
      changed = true;
    }
  return changed;
}

namespace {
struct FoldResultsPass
    : public ddp::impl::DDPFoldResultsPassBase<FoldResultsPass> {
  void runOnOperation() override {
    PrivateFunctions functions = collectPrivateFunctions(getOperation());
    // If a callee returned a value twice, its caller may do so too.
    bool changed = true, changedAny = false;
    while (changed) {
      changed = false;
      for (auto &[function, calls] : functions)
        changed |= foldResults(function, calls);
      changedAny |= changed;
    }
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (function.isPrivate() && !functions.contains(function))
        changedAny |= copyEqualResults(function);
    if (!changedAny)
      markAllAnalysesPreserved();
  }
};
} // namespace
