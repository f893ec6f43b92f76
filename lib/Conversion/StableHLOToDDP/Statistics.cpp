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

/// Whether `op` adds something to one of its operands, constants aside.
static bool isSum(Operation *op) {
  return (isNamed(op, "stablehlo.add") || isNamed(op, "stablehlo.subtract")) &&
         llvm::none_of(op->getOperands(),
                       [](Value value) { return getSplat(value).has_value(); });
}

/// Whether something is added to the argument `value` of a step and becomes a
/// result. What a step gets and does not change, such as data and frozen
/// parameters, is also added to statistics.
bool Statistics::isTrained(Value value) {
  // More than an optimizer puts between a parameter and its new value.
  constexpr unsigned maxPlaces = 1000;
  auto [it, isNew] = trained.try_emplace(value, false);
  if (!isNew)
    return it->second;
  const int64_t size = getSize(value);
  // Each with 1 if something has been added before it.
  llvm::SetVector<std::pair<ValueFlow::Place, unsigned>> places;
  places.insert({{value, 0}, 0});
  for (unsigned i = 0; i < places.size() && i < maxPlaces; ++i) {
    const ValueFlow::Place place = places[i].first;
    const unsigned isMoved = places[i].second;
    for (OpOperand &use : place.first.getUses()) {
      Operation *user = use.getOwner();
      if (isMoved && place.second == 0 && isa<func::ReturnOp>(user)) {
        auto function = dyn_cast<func::FuncOp>(user->getParentOp());
        if (function && flow.getCalls(function).empty())
          return trained[value] = true;
      }
      if (flow.follow(use, place.second, [&](ValueFlow::Place next) {
            places.insert({next, isMoved});
          }))
        continue;
      if (isComputation(user))
        for (Value result : user->getResults())
          if (getSize(result) == size)
            places.insert({{result, place.second}, isMoved | isSum(user)});
    }
  }
  return false;
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
    result = isNamed(owner, "stablehlo.while") ||
             (function && calls.empty() && isTrained(value)) ||
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
  return isSum(op) &&
         llvm::all_of(op->getResults(),
                      [&](Value result) { return getSize(result) == size; }) &&
         llvm::any_of(op->getOperands(), [&](Value other) {
           return other != gradient && isParameter(other, size, /*depth=*/0);
         });
}

/// Returns true if `op` computes from `value` and from a parameter or a state
/// of any size.
bool Statistics::meetsParameter(Operation *op, Value value) {
  return llvm::any_of(op->getOperands(), [&](Value other) {
    return other != value && isParameter(other, getSize(other), /*depth=*/0);
  });
}

bool Statistics::contains(Value value) {
  // An optimizer takes a gradient through fewer values, and a statistic is used
  // sooner.
  constexpr unsigned maxPlaces = 10000;
  // Those in `direct` are the gradient itself, or multiples of it.
  llvm::SetVector<ValueFlow::Place> places;
  llvm::DenseSet<Value> direct{value};
  // As many elements as a parameter has that a value may move.
  llvm::DenseMap<Value, int64_t> sizes{{value, getSize(value)}};
  places.insert({value, 0});
  bool isMove = false, isUsed = false;
  for (unsigned i = 0; i < places.size() && i < maxPlaces; ++i) {
    const ValueFlow::Place place = places[i];
    const bool isDirect = direct.contains(place.first);
    const int64_t size = sizes.lookup(place.first);
    auto push = [&](ValueFlow::Place next, bool isNextDirect,
                    int64_t nextSize) {
      // Numbers such as a norm say how far to go, not where.
      if (isScalar(next.first))
        return;
      if (isNextDirect)
        direct.insert(next.first);
      sizes.try_emplace(next.first, nextSize);
      places.insert(next);
    };
    for (OpOperand &use : place.first.getUses()) {
      if (flow.follow(use, place.second, [&](ValueFlow::Place next) {
            push(next, isDirect, size);
          }))
        continue;
      Operation *user = use.getOwner();
      const bool isReduction = isNamed(user, "stablehlo.all_reduce");
      if (isReduction && !isDirect)
        return true;
      if (moves(user, place.first, size)) {
        isMove = true;
        continue;
      }
      isUsed = isUsed || meetsParameter(user, place.first);
      // What is reduced over another axis as well is the same gradient.
      const bool isNextDirect =
          isDirect && (isReduction || getOnlySource(user) == place.first);
      // Several gradients may be reduced as one array.
      const bool isPart =
          isNamed(user, "stablehlo.slice") && getSize(place.first) == size;
      for (Value result : user->getResults())
        push({result, place.second}, isNextDirect,
             isPart ? getSize(result) : size);
    }
  }
  hasGradients |= isMove;
  if (isMove || isUsed || places.size() >= maxPlaces)
    used.insert(value);
  return false;
}

//===----------------------------------------------------------------------===//
// Averages of states
//===----------------------------------------------------------------------===//

/// Whether all elements of `value` are the same number, whatever that is.
static bool isUniform(Value value) {
  // More than JAX puts between a number and its use.
  constexpr unsigned maxDepth = 8;
  for (unsigned depth = 0; depth < maxDepth; ++depth) {
    if (isScalar(value) || getSplat(value))
      return true;
    Operation *op = value.getDefiningOp();
    if (!op || (!isRearrangement(op) && !isFloatConversion(op)))
      return false;
    value = op->getOperand(0);
  }
  return false;
}

/// The operands whose elements become those of `op`'s result: moved, converted,
/// chosen, multiplied by a number or kept in bounds.
static SmallVector<Value> getSources(Operation *op) {
  if (isRearrangement(op) || isFloatConversion(op))
    return {op->getOperand(0)};
  unsigned count = op->getNumOperands();
  if (isNamed(op, "stablehlo.select") && count == 3)
    return {op->getOperand(1), op->getOperand(2)};
  if (isNamed(op, "stablehlo.clamp") && count == 3)
    return {op->getOperand(1)};
  bool isDivision = isNamed(op, "stablehlo.divide");
  if (count != 2 ||
      (!isDivision && !isNamed(op, "stablehlo.multiply") &&
       !isNamed(op, "stablehlo.maximum") && !isNamed(op, "stablehlo.minimum")))
    return {};
  if (isUniform(op->getOperand(1)))
    return {op->getOperand(0)};
  if (!isDivision && isUniform(op->getOperand(0)))
    return {op->getOperand(1)};
  return {};
}

/// Whether `value` is what a step gets, or carries from one step to the next,
/// and something added to it: 0.9 m + 0.1 b.
bool Statistics::isMovedState(Value value) {
  // A program computes this with fewer operations.
  constexpr unsigned maxPlaces = 100;
  // Each with 1 if something has been added to it.
  llvm::SetVector<std::pair<ValueFlow::Place, unsigned>> places;
  places.insert({{value, 0}, 0});
  for (unsigned i = 0; i < places.size() && i < maxPlaces; ++i) {
    const ValueFlow::Place place = places[i].first;
    const unsigned isMoved = places[i].second;
    if (getSize(place.first) != getSize(value) ||
        flow.followBack(place, [&](ValueFlow::Place next) {
          places.insert({next, isMoved});
        }))
      continue;
    if (auto argument = dyn_cast<BlockArgument>(place.first)) {
      Operation *owner = argument.getOwner()->getParentOp();
      if (isMoved && (isa_and_nonnull<func::FuncOp>(owner) ||
                      isNamed(owner, "stablehlo.while")))
        return true;
      continue;
    }
    Operation *op = place.first.getDefiningOp();
    bool isMove = isSum(op);
    for (Value source :
         isMove ? SmallVector<Value>(op->getOperands()) : getSources(op))
      places.insert({{source, place.second}, isMoved | isMove});
  }
  return false;
}

/// Whether all that becomes of `value` are results of the program.
bool Statistics::isOnlyReturned(Value value) {
  constexpr unsigned maxPlaces = 1000;
  llvm::SetVector<ValueFlow::Place> places;
  places.insert({value, 0});
  for (unsigned i = 0; i < places.size(); ++i) {
    const ValueFlow::Place place = places[i];
    if (i == maxPlaces || place.first.use_empty())
      return false;
    for (OpOperand &use : place.first.getUses()) {
      Operation *user = use.getOwner();
      if (flow.follow(use, place.second,
                      [&](ValueFlow::Place next) { places.insert(next); }))
        continue;
      if (!isComputation(user) || getOnlySource(user) != place.first ||
          user->getNumResults() != 1)
        return false;
      places.insert({user->getResult(0), place.second});
    }
  }
  return true;
}

bool Statistics::isMetric(OpResult value) const {
  return hasGradients && !used.contains(value);
}

bool Statistics::isAverage(OpResult value) {
  Value input = value.getOwner()->getOperand(value.getResultNumber());
  return hasGradients && isOnlyReturned(value) && isMovedState(input);
}
