//===- Statistics.cpp ------------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See Statistics.h.
//
//===----------------------------------------------------------------------===//

#include "Statistics.h"
#include "StableHLO.h"

using namespace mlir;
using namespace mlir::ddp;

/// The number of elements; -1 if it is not known.
static int64_t getSize(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && type.hasStaticShape() ? type.getNumElements() : -1;
}

static bool isScalar(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && type.getRank() == 0;
}

/// Whether `value` is what a parameter or a state of an optimizer of this size
/// was before the step, or is computed from it element by element.
bool Statistics::isParameter(Value value, int64_t size, unsigned depth) {
  // More than a program puts between a parameter and its move.
  constexpr unsigned maxDepth = 1000;
  if (getSize(value) != size || depth == maxDepth)
    return false;
  auto [it, isNew] = parameters.try_emplace(value, false);
  if (!isNew)
    return it->second;
  bool result = false;
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    Operation *owner = argument.getOwner()->getParentOp();
    auto function = dyn_cast_or_null<func::FuncOp>(owner);
    ArrayRef<func::CallOp> calls;
    if (function)
      calls = flow.getCalls(function);
    unsigned number = argument.getArgNumber();
    // A loop carries parameters from one step to the next.
    result = isNamed(owner, "stablehlo.while") || (function && calls.empty()) ||
             llvm::any_of(calls, [&](func::CallOp call) {
               return number < call.getNumOperands() &&
                      isParameter(call.getOperand(number), size, depth + 1);
             });
  } else if (Operation *op = value.getDefiningOp(); isComputation(op)) {
    result = llvm::any_of(op->getOperands(), [&](Value operand) {
      return isParameter(operand, size, depth + 1);
    });
  }
  parameters[value] = result;
  return result;
}

/// Whether `op` moves a parameter by what is computed from `gradient`.
bool Statistics::moves(Operation *op, Value gradient, int64_t size) {
  return isComputation(op) &&
         llvm::all_of(op->getResults(),
                      [&](Value result) { return getSize(result) == size; }) &&
         llvm::any_of(op->getOperands(), [&](Value other) {
           return other != gradient && isParameter(other, size, /*depth=*/0);
         });
}

bool Statistics::contains(Value value) {
  // An optimizer takes a gradient through fewer values, and a statistic is used
  // sooner.
  constexpr unsigned maxPlaces = 10000;
  const int64_t size = getSize(value);
  // Those in `direct` are the gradient itself, or multiples of it.
  llvm::SetVector<ValueFlow::Place> places;
  llvm::DenseSet<Value> direct{value};
  places.insert({value, 0});
  for (unsigned i = 0; i < places.size() && i < maxPlaces; ++i) {
    const ValueFlow::Place place = places[i];
    const bool isDirect = direct.contains(place.first);
    auto push = [&](ValueFlow::Place next, bool isNextDirect) {
      // Numbers such as a norm say how far to go, not where.
      if (isScalar(next.first))
        return;
      if (isNextDirect)
        direct.insert(next.first);
      places.insert(next);
    };
    for (OpOperand &use : place.first.getUses()) {
      if (flow.follow(use, place.second,
                      [&](ValueFlow::Place next) { push(next, isDirect); }))
        continue;
      Operation *user = use.getOwner();
      const bool isReduction = isNamed(user, "stablehlo.all_reduce");
      if (isReduction && !isDirect)
        return true;
      if (moves(user, place.first, size))
        continue;
      // What is reduced over another axis as well is the same gradient.
      const bool isNextDirect =
          isDirect && (isReduction || getOnlySource(user) == place.first);
      for (Value result : user->getResults())
        push({result, place.second}, isNextDirect);
    }
  }
  return false;
}
