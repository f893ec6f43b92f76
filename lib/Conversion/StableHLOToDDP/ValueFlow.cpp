//===- ValueFlow.cpp -------------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See ValueFlow.h.
//
//===----------------------------------------------------------------------===//

#include "ValueFlow.h"
#include "StableHLO.h"

using namespace mlir;
using namespace mlir::ddp;

ValueFlow::ValueFlow(ModuleOp module) {
  module.walk(
      [&](func::CallOp call) { calls[call.getCallee()].push_back(call); });
}

ArrayRef<func::CallOp> ValueFlow::getCalls(func::FuncOp function) const {
  auto it = calls.find(function.getName());
  return it == calls.end() ? ArrayRef<func::CallOp>() : it->second;
}

bool ValueFlow::follow(OpOperand &use, unsigned entry,
                       function_ref<void(Place)> push) {
  Operation *user = use.getOwner();
  Operation *parent = user->getParentOp();
  unsigned number = use.getOperandNumber();
  auto pushResult = [&](Operation *op, unsigned entryOfOp) {
    if (number < op->getNumResults())
      push({op->getResult(number), entryOfOp});
  };
  if (auto call = dyn_cast<func::CallOp>(user)) {
    auto callee = symbols.lookupNearestSymbolFrom<func::FuncOp>(
        call, call.getCalleeAttr());
    if (!callee || number >= callee.getNumArguments() || callee.isExternal())
      return true;
    auto it =
        entries.insert({{call, entry}, unsigned(entries.size()) + 1}).first;
    push({callee.getArgument(number), it->second});
    return true;
  }
  if (auto function = dyn_cast<func::FuncOp>(parent);
      function && isa<func::ReturnOp>(user)) {
    if (entry != 0) {
      auto [call, outer] = std::next(entries.begin(), entry - 1)->first;
      pushResult(call, outer);
      return true;
    }
    for (func::CallOp call : getCalls(function))
      pushResult(call, 0);
    return true;
  }
  auto isBranch = [](Operation *op) {
    return isNamed(op, "stablehlo.case") || isNamed(op, "stablehlo.if");
  };
  if (isNamed(user, "stablehlo.return")) {
    bool isLoop = isNamed(parent, "stablehlo.while");
    bool isCondition =
        isLoop && user->getParentRegion()->getRegionNumber() == 0;
    if ((isLoop && !isCondition) || isBranch(parent))
      pushResult(parent, entry);
    return true;
  }
  if (isNamed(user, "stablehlo.while")) {
    for (Region &region : user->getRegions())
      if (!region.empty() && number < region.getNumArguments())
        push({region.getArgument(number), entry});
    pushResult(user, entry);
    return true;
  }
  return isBranch(user);
}
