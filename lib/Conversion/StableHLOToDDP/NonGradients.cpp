// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "NonGradients.h"
#include "StableHLO.h"

using namespace mlir;
using namespace mlir::ddp;

/// Returns the number of elements, or -1 if it is unknown.
static int64_t getSize(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && type.hasStaticShape() ? type.getNumElements() : -1;
}

static bool isScalar(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && type.getRank() == 0;
}

/// Returns true if `op` adds or subtracts two values, neither a constant.
static bool isSum(Operation *op) {
  return (isNamed(op, "stablehlo.add") || isNamed(op, "stablehlo.subtract")) &&
         llvm::none_of(op->getOperands(),
                       [](Value value) { return getSplat(value).has_value(); });
}

/// Returns true if a step adds something to its argument `value` and returns
/// the sum. Arguments that a step does not change, such as data and frozen
/// parameters, are also added to statistics.
bool NonGradients::isTrained(Value value) {
  // An optimizer has fewer values between a parameter and its new value.
  constexpr unsigned maxPlaces = 1000;
  auto [it, isNew] = trained.try_emplace(value, false);
  if (!isNew)
    return it->second;
  const int64_t size = getSize(value);
  // The flag is 1 if something has been added on the way.
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

/// Returns true if `value` is a parameter or optimizer state of this size
/// before the step, or is computed from one element by element.
bool NonGradients::isParameter(Value value, int64_t size, unsigned depth) {
  // A program has fewer values between a parameter and its update.
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

/// Returns true if `op` moves a parameter by a value made from `gradient`.
bool NonGradients::moves(Operation *op, Value gradient, int64_t size) {
  return isSum(op) &&
         llvm::all_of(op->getResults(),
                      [&](Value result) { return getSize(result) == size; }) &&
         llvm::any_of(op->getOperands(), [&](Value other) {
           return other != gradient && isParameter(other, size, /*depth=*/0);
         });
}

/// Returns true if `op` computes from `value` and from a parameter or a state
/// of any size.
bool NonGradients::meetsParameter(Operation *op, Value value) {
  return llvm::any_of(op->getOperands(), [&](Value other) {
    return other != value && isParameter(other, getSize(other), /*depth=*/0);
  });
}

bool NonGradients::contains(Value value) {
  // An optimizer passes a gradient through fewer values, and statistics are
  // used sooner.
  constexpr unsigned maxPlaces = 10000;
  // Values in `direct` are the gradient itself, or multiples of it.
  llvm::SetVector<ValueFlow::Place> places;
  llvm::DenseSet<Value> direct{value};
  // The number of elements of the parameter that a value may update.
  llvm::DenseMap<Value, int64_t> sizes{{value, getSize(value)}};
  places.insert({value, 0});
  bool isMove = false, isUsed = false;
  for (unsigned i = 0; i < places.size() && i < maxPlaces; ++i) {
    const ValueFlow::Place place = places[i];
    const bool isDirect = direct.contains(place.first);
    const int64_t size = sizes.lookup(place.first);
    auto push = [&](ValueFlow::Place next, bool isNextDirect,
                    int64_t nextSize) {
      // Scalars such as a norm scale an update but have no direction.
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
      // A gradient that is reduced over another axis too is still the same.
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

/// Returns true if all elements of `value` are equal, even if unknown.
static bool isUniform(Value value) {
  // JAX puts fewer operations between a number and its use.
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

/// Returns the operands whose elements become those of `op`'s result: moved,
/// converted, selected, scaled by a number or clamped.
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

/// Returns true if `value` is something added to a value that a step receives,
/// or carries from one step to the next: 0.9 m + 0.1 b.
bool NonGradients::isMovedState(Value value) {
  // A program computes this with fewer operations.
  constexpr unsigned maxPlaces = 100;
  // The flag is 1 if something is added on the way.
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

/// Returns true if `value` is used only to compute results of the program.
bool NonGradients::isOnlyReturned(Value value) {
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

bool NonGradients::isMetric(OpResult value) const {
  return hasGradients && !used.contains(value);
}

bool NonGradients::isAverage(OpResult value) {
  Value input = value.getOwner()->getOperand(value.getResultNumber());
  return hasGradients && isOnlyReturned(value) && isMovedState(input);
}
