// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// JAX names results, not operations, by their paths in a tree of Python
// objects, such as result[0]['params']['Dense_0']['kernel'].

#include "ImportSteps.h"
#include "StableHLO.h"

#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace mlir::ddp;

static constexpr StringLiteral kResultInfo = "jax.result_info";

/// Consumes the next step of a path: [0], ['key'] or .field.
static std::optional<StringRef> takeStep(StringRef &path) {
  if (path.consume_front(".")) {
    StringRef step =
        path.take_until([](char c) { return c == '.' || c == '['; });
    path = path.drop_front(step.size());
    return step;
  }
  for (auto [open, close] : {std::pair("['", "']"), std::pair("[", "]")})
    if (path.consume_front(open)) {
      StringRef step = path.take_front(path.find(close));
      path = path.drop_front(step.size());
      return path.consume_front(close) ? std::optional(step) : std::nullopt;
    }
  return std::nullopt;
}

/// Returns "params.Dense_0.kernel" for the path above. Drops the leading tuple
/// index of a program that returns more than the parameters.
static std::string makeName(StringRef info) {
  auto isNumber = [](StringRef step) {
    return llvm::all_of(step, llvm::isDigit);
  };
  SmallVector<StringRef> steps;
  StringRef path = info.drop_front(
      info.take_until([](char c) { return c == '.' || c == '['; }).size());
  while (!path.empty()) {
    std::optional<StringRef> step = takeStep(path);
    if (!step)
      return info.str();
    steps.push_back(*step);
  }
  if (steps.empty())
    return info.str();
  if (llvm::all_of(steps, isNumber))
    return "result" + llvm::join(steps, ".");
  return llvm::join(ArrayRef(steps).drop_front(isNumber(steps[0])), ".");
}

/// Pushes the values that have the elements of `use`, one for one.
static void follow(ValueFlow &flow, OpOperand &use, unsigned entry,
                   function_ref<void(ValueFlow::Place)> push) {
  Operation *user = use.getOwner();
  // JAX may reduce the updates that the gradient of a table is scattered from.
  if (flow.follow(use, entry, push) ||
      !(isComputation(user) || isa<AllReduceOp>(user) ||
        isNamed(user, "stablehlo.scatter")))
    return;
  auto from = dyn_cast<RankedTensorType>(use.get().getType());
  for (Value result : user->getResults())
    if (auto to = dyn_cast<RankedTensorType>(result.getType());
        from && to && from.hasStaticShape() && to.hasStaticShape() &&
        from.getNumElements() == to.getNumElements())
      push({result, entry});
}

/// Returns the path of the first result that has the elements of `value`, or
/// null.
static StringAttr findInfo(ValueFlow &flow, Value value) {
  // An optimizer passes a gradient through fewer values.
  constexpr unsigned maxValues = 1000;
  SetVector<ValueFlow::Place> places;
  places.insert({value, 0});
  std::optional<unsigned> first;
  StringAttr info;
  for (unsigned i = 0; i < places.size() && i < maxValues; ++i) {
    auto [at, entry] = places[i];
    for (OpOperand &use : at.getUses()) {
      auto function = dyn_cast<func::FuncOp>(use.getOwner()->getParentOp());
      unsigned number = use.getOperandNumber();
      if (function && isa<func::ReturnOp>(use.getOwner()) &&
          number < function.getNumResults() && (!first || number < *first))
        if (auto name =
                function.getResultAttrOfType<StringAttr>(number, kResultInfo)) {
          first = number;
          info = name;
        }
      follow(flow, use, entry,
             [&](ValueFlow::Place place) { places.insert(place); });
    }
  }
  return info;
}

void mlir::ddp::nameGradients(ModuleOp module, ValueFlow &flow,
                              ArrayRef<AllReduceOp> reductions) {
  llvm::StringSet<> taken;
  module.walk([&](Operation *op) {
    if (auto name = op->getAttrOfType<StringAttr>(DDPDialect::kNameAttrName))
      taken.insert(name.getValue());
  });
  for (AllReduceOp reduction : reductions) {
    if (reduction->hasAttr(DDPDialect::kNameAttrName))
      continue;
    StringAttr info = findInfo(flow, reduction.getResult());
    std::string name = info ? makeName(info.getValue()) : "";
    if (name.empty())
      continue;
    std::string unique = name;
    for (unsigned i = 1; !taken.insert(unique).second; ++i)
      unique = name + "#" + std::to_string(i);
    reduction.setGradientName(unique);
  }
}
