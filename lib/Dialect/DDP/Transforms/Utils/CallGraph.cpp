// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds private functions with all of their calls, and changes both.

#include "CallGraph.h"
#include "../../Analysis/SymbolRefs.h"

#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace mlir::ddp;

PrivateFunctions mlir::ddp::collectPrivateFunctions(ModuleOp module) {
  PrivateFunctions functions;
  llvm::DenseMap<StringAttr, func::FuncOp> byName;
  for (auto function : module.getOps<func::FuncOp>())
    if (function.isPrivate() && !function.isExternal()) {
      functions[function];
      byName[function.getSymNameAttr()] = function;
    }
  if (functions.empty())
    return functions;
  // Names in nested symbol tables may differ; leave such functions alone.
  SymbolRefFinder others([&](SymbolRefAttr symbol) {
    if (auto it = byName.find(symbol.getRootReference()); it != byName.end()) {
      functions.erase(it->second);
      byName.erase(it);
    }
  });
  SmallVector<func::CallOp> calls;
  module.walk([&](Operation *op) {
    auto call = dyn_cast<func::CallOp>(op);
    if (call && op->getParentOfType<ModuleOp>() == module) {
      calls.push_back(call);
      others.visitDiscardable(call);
      return;
    }
    others.visit(op);
  });
  for (func::CallOp call : calls)
    if (auto it = byName.find(call.getCalleeAttr().getAttr());
        it != byName.end())
      functions[it->second].push_back(call);
  return functions;
}

llvm::DenseSet<StringAttr> mlir::ddp::collectReferencedNames(ModuleOp module) {
  llvm::DenseSet<StringAttr> names;
  SymbolRefFinder finder(
      [&](SymbolRefAttr symbol) { names.insert(symbol.getRootReference()); });
  module.walk([&](Operation *op) { finder.visit(op); });
  return names;
}

SmallVector<func::ReturnOp> mlir::ddp::getReturns(func::FuncOp function) {
  SmallVector<func::ReturnOp> returns;
  for (Block &block : function.getBody())
    if (auto op = dyn_cast<func::ReturnOp>(block.getTerminator()))
      returns.push_back(op);
  return returns;
}

void mlir::ddp::eraseResults(func::FuncOp function,
                             const llvm::BitVector &erased) {
  for (func::ReturnOp op : getReturns(function))
    op->eraseOperands(erased);
  (void)function.eraseResults(erased);
}

void mlir::ddp::replaceCall(func::CallOp &call, const llvm::BitVector &erased,
                            ArrayRef<Value> newOperands) {
  call.removeArgAttrsAttr();
  call.removeResAttrsAttr();
  call->insertOperands(call.getNumOperands(), newOperands);
  call = cast<func::CallOp>(
      IRRewriter(call.getContext()).eraseOpResults(call, erased));
}

SmallVector<unsigned>
mlir::ddp::findFirstEqual(ArrayRef<func::ReturnOp> returns,
                          unsigned numResults) {
  SmallVector<unsigned> first(numResults, 0);
  for (func::ReturnOp op : returns) {
    // Maps a set of results that were equal so far, and a value that one of
    // them returns here, to the first result of that set with this value.
    llvm::DenseMap<std::pair<unsigned, Value>, unsigned> refined;
    for (auto [number, value] : llvm::enumerate(op.getOperands()))
      first[number] =
          refined.try_emplace({first[number], value}, number).first->second;
  }
  return first;
}
