// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

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

std::pair<func::FuncOp, unsigned> ValueFlow::enter(func::CallOp call,
                                                   unsigned entry) {
  auto callee =
      symbols.lookupNearestSymbolFrom<func::FuncOp>(call, call.getCalleeAttr());
  if (!callee || callee.isExternal())
    return {};
  auto it = entries.insert({{call, entry}, unsigned(entries.size()) + 1}).first;
  return {callee, it->second};
}

bool ValueFlow::followBack(Place place, function_ref<void(Place)> push) {
  auto [value, entry] = place;
  if (auto call = value.getDefiningOp<func::CallOp>()) {
    auto [callee, inner] = enter(call, entry);
    unsigned number = cast<OpResult>(value).getResultNumber();
    if (callee)
      for (func::ReturnOp end : callee.getOps<func::ReturnOp>())
        if (number < end.getNumOperands())
          push({end.getOperand(number), inner});
    return true;
  }
  auto argument = dyn_cast<BlockArgument>(value);
  auto function =
      argument
          ? dyn_cast_or_null<func::FuncOp>(argument.getOwner()->getParentOp())
          : func::FuncOp();
  if (!function)
    return false;
  auto pushOperand = [&](func::CallOp call, unsigned outer) {
    if (argument.getArgNumber() < call.getNumOperands())
      push({call.getOperand(argument.getArgNumber()), outer});
  };
  if (entry != 0) {
    auto [call, outer] = std::next(entries.begin(), entry - 1)->first;
    pushOperand(cast<func::CallOp>(call), outer);
    return true;
  }
  ArrayRef<func::CallOp> all = getCalls(function);
  for (func::CallOp call : all)
    pushOperand(call, 0);
  return !all.empty();
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
    auto [callee, inner] = enter(call, entry);
    if (callee && number < callee.getNumArguments())
      push({callee.getArgument(number), inner});
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
