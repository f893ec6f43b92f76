// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "InlineFunctions.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace mlir::ddp;

static LogicalResult inlineCall(func::CallOp call, func::FuncOp callee,
                                StringRef what) {
  if (callee->isProperAncestor(call))
    return call.emitOpError() << "expected no recursion in a function with "
                              << what << ", @" << callee.getSymName();
  Block &body = callee.getBody().front();
  auto *terminator = body.empty() ? nullptr : &body.back();
  if (!callee.getBody().hasOneBlock() ||
      !isa_and_nonnull<func::ReturnOp>(terminator))
    return call.emitOpError()
           << "expected a function of one block, since it has " << what;
  // Unregistered dialects' operations may contain calls that were not verified,
  // and whose results are their own operands.
  if (call.getCalleeType() != callee.getFunctionType())
    return call.emitOpError() << "expected the types of its callee, but got "
                              << call.getCalleeType();
  if (llvm::is_contained(call->getUsers(), call.getOperation()))
    return call.emitOpError() << "expected results that do not depend on "
                                 "themselves";
  IRMapping mapping;
  mapping.map(body.getArguments(), call.getOperands());
  OpBuilder builder(call);
  for (Operation &op : body.without_terminator())
    builder.clone(op, mapping);
  for (auto [result, value] :
       llvm::zip_equal(call.getResults(), terminator->getOperands()))
    result.replaceAllUsesWith(mapping.lookup(value));
  call.erase();
  return success();
}

LogicalResult mlir::ddp::inlineFunctionsWith(
    ModuleOp module, function_ref<bool(Operation *)> isWanted, StringRef what) {
  // A chain of functions, each calling the next twice, grows exponentially.
  constexpr int64_t maxCloned = 1 << 18;
  int64_t numCloned = 0;
  // After inlining, the callers contain the operations.
  while (true) {
    llvm::DenseSet<Operation *> wanted;
    for (auto function : module.getOps<func::FuncOp>())
      function.walk([&](Operation *op) {
        if (isWanted(op))
          wanted.insert(function);
      });
    SymbolTableCollection symbols;
    SmallVector<std::pair<func::CallOp, func::FuncOp>> calls;
    module.walk([&](func::CallOp call) {
      auto callee = symbols.lookupNearestSymbolFrom<func::FuncOp>(
          call, call.getCalleeAttr());
      if (wanted.contains(callee))
        calls.push_back({call, callee});
    });
    if (calls.empty())
      return success();
    SetVector<Operation *> callees;
    for (auto [call, callee] : calls) {
      callee.walk([&](Operation *) { ++numCloned; });
      if (numCloned > maxCloned)
        return call.emitOpError() << "expected at most " << maxCloned
                                  << " more operations after functions with "
                                  << what << " are inlined";
      if (failed(inlineCall(call, callee, what)))
        return failure();
      callees.insert(callee);
    }
    for (Operation *callee : callees)
      if (cast<func::FuncOp>(callee).isPrivate() &&
          SymbolTable::symbolKnownUseEmpty(callee, module))
        callee->erase();
  }
}
