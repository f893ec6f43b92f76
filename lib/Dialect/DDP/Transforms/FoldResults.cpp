//===- FoldResults.cpp -----------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-fold-results: a function need not return what its caller has already.
// While these are values, the caller may use the other one; once they are
// memory, two results would be two buffers, and one of them a copy.
//
//===----------------------------------------------------------------------===//

#include "CallGraph.h"
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

namespace mlir::ddp {
#define GEN_PASS_DEF_DDPFOLDRESULTSPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h.inc"
} // namespace mlir::ddp

using namespace mlir;
using namespace mlir::ddp;

/// The argument of the function that each return gives as this result, or null.
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

/// The first result before this one that is the same value in each return.
static std::optional<unsigned> findEqual(ArrayRef<func::ReturnOp> returns,
                                         unsigned number) {
  for (unsigned before = 0; before < number; ++before)
    if (llvm::all_of(returns, [&](func::ReturnOp op) {
          return op.getOperand(before) == op.getOperand(number);
        }))
      return before;
  return std::nullopt;
}

/// Drops what the function's callers have already. Says whether it did.
static bool foldResults(func::FuncOp function,
                        MutableArrayRef<func::CallOp> calls) {
  SmallVector<func::ReturnOp> returns = getReturns(function);
  if (returns.empty())
    return false;
  llvm::BitVector erased(function.getNumResults());
  for (unsigned number = 0; number < erased.size(); ++number) {
    BlockArgument argument = findArgument(returns, number);
    std::optional<unsigned> equal =
        argument ? std::nullopt : findEqual(returns, number);
    if (!argument && !equal)
      continue;
    erased.set(number);
    for (func::CallOp call : calls)
      call.getResult(number).replaceAllUsesWith(
          argument ? call.getOperand(argument.getArgNumber())
                   : call.getResult(*equal));
  }
  if (erased.none())
    return false;
  eraseResults(function, erased);
  for (func::CallOp &call : calls)
    replaceCall(call, erased, /*newOperands=*/{});
  return true;
}

namespace {
struct FoldResultsPass
    : public ddp::impl::DDPFoldResultsPassBase<FoldResultsPass> {
  using DDPFoldResultsPassBase::DDPFoldResultsPassBase;

  void runOnOperation() override {
    PrivateFunctions functions = collectPrivateFunctions(getOperation());
    // What a callee returned twice its caller may return twice.
    bool changed = true;
    while (changed) {
      changed = false;
      for (auto &[function, calls] : functions)
        changed |= foldResults(function, calls);
    }
  }
};
} // namespace
