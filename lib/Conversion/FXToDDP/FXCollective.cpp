//===- FXCollective.cpp ----------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See FXCollective.h.
//
//===----------------------------------------------------------------------===//

#include "FXCollective.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace mlir::ddp;

static constexpr StringLiteral kFunctionAttrName = "fx";
static constexpr StringLiteral kTargetName = "target";

/// Whether ranks meet in an operator of this name.
static bool isCollectiveTarget(StringRef target) {
  for (StringRef library :
       {"_c10d_functional.", "_c10d_functional_autograd.", "_dtensor.", "c10d.",
        "c10d_functional.", "symm_mem."})
    if (target.starts_with(library))
      return true;
  return false;
}

static std::string simplify(StringRef target) {
  target.consume_front("torch.");
  target.consume_back(".default");
  return target.str();
}

static DictionaryAttr getFunctionAttr(Operation *callee) {
  auto function = dyn_cast_or_null<func::FuncOp>(callee);
  if (!function || !function.isExternal())
    return {};
  return function->getAttrOfType<DictionaryAttr>(kFunctionAttrName);
}

bool mlir::ddp::isCollectiveFunction(Operation *callee) {
  DictionaryAttr description = getFunctionAttr(callee);
  auto target =
      description ? description.getAs<StringAttr>(kTargetName) : StringAttr();
  return target && isCollectiveTarget(simplify(target));
}

std::optional<FXCollective>
mlir::ddp::matchCollective(Operation *op, SymbolTableCollection &symbols) {
  if (auto call = dyn_cast<func::CallOp>(op)) {
    Operation *callee =
        symbols.lookupNearestSymbolFrom(op, call.getCalleeAttr());
    if (!isCollectiveFunction(callee))
      return std::nullopt;
    DictionaryAttr description = getFunctionAttr(callee);
    auto target = description.getAs<StringAttr>(kTargetName);
    return FXCollective{op, simplify(target), description, callee};
  }
  StringRef name = op->getName().getStringRef();
  if (!name.starts_with("torch."))
    return std::nullopt;
  std::string target = simplify(name);
  if (!isCollectiveTarget(target))
    return std::nullopt;
  return FXCollective{op, target, op->getAttrDictionary()};
}

bool FXCollective::isStart() const {
  return target == "_c10d_functional.all_reduce" ||
         target == "_c10d_functional.all_reduce_coalesced";
}

bool FXCollective::isWait() const {
  return target == "_c10d_functional.wait_tensor";
}

StringRef FXCollective::getString(StringRef name) const {
  auto string = arguments.getAs<StringAttr>(name);
  return string ? string.getValue() : StringRef();
}

InFlightDiagnostic FXCollective::emitError() const {
  return op->emitError() << "'" << target << "' ";
}
