// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "FXCollective.h"
#include "../Utils/TensorExchange.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using namespace mlir::ddp;

static constexpr StringLiteral kFunctionAttrName = "fx";
static constexpr StringLiteral kTargetName = "target";

/// Returns true if an operator of this name communicates with other ranks.
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

std::optional<CollectiveKind> FXCollective::getKind() const {
  StringRef name = target;
  if (!name.consume_front("_c10d_functional."))
    return std::nullopt;
  return llvm::StringSwitch<std::optional<CollectiveKind>>(name)
      .Cases({"all_reduce", "all_reduce_coalesced"}, CollectiveKind::AllReduce)
      .Case("reduce_scatter_tensor", CollectiveKind::ReduceScatter)
      .Case("all_gather_into_tensor", CollectiveKind::AllGather)
      .Case("all_to_all_single", CollectiveKind::AllToAll)
      .Case("broadcast", CollectiveKind::Broadcast)
      .Default(std::nullopt);
}

bool FXCollective::isReduction() const {
  return getKind() == CollectiveKind::AllReduce ||
         getKind() == CollectiveKind::ReduceScatter;
}

bool FXCollective::isWait() const {
  return target == "_c10d_functional.wait_tensor";
}

StringRef FXCollective::getString(StringRef name) const {
  auto string = arguments.getAs<StringAttr>(name);
  return string ? string.getValue() : StringRef();
}

std::optional<int64_t> FXCollective::getInteger(StringRef name) const {
  auto integer = arguments.getAs<IntegerAttr>(name);
  return integer ? std::optional(integer.getValue().getSExtValue())
                 : std::nullopt;
}

InFlightDiagnostic FXCollective::emitError() const {
  return op->emitError() << "'" << target << "' ";
}

/// Describes an exchange, which splits tensors along their first dimension.
static TensorExchange describe(const FXCollective &start, int64_t size) {
  TensorExchange exchange{start.op, *start.getKind(), size};
  exchange.root = start.getInteger("src").value_or(0);
  if (start.getString("reduce_op") == "avg")
    exchange.reduction = Reduction::Mean;
  return exchange;
}

std::string mlir::ddp::judgeExchange(const FXCollective &start,
                                     std::optional<int64_t> size) {
  Operation *op = start.op;
  if (op->getNumOperands() != 1 || op->getNumResults() != 1)
    return "expected one operand and one result";
  auto to = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  if (!to || !to.hasStaticShape())
    return "expected a result of static shape";
  if (!size)
    return "expected a process group that declares its size";
  bool fits = describe(start, *size).hasFittingTypes();
  if (start.getKind() == CollectiveKind::Broadcast) {
    int64_t root = start.getInteger("src").value_or(-1);
    return fits && root >= 0 && root < *size
               ? ""
               : "expected src to be a rank of the group";
  }
  for (StringRef name : {"output_split_sizes", "input_split_sizes"})
    if (auto sizes = start.arguments.getAs<ArrayAttr>(name))
      fits &= llvm::all_equal(sizes);
  return fits ? "" : "expected equal parts of a tensor, one for each rank";
}

Value mlir::ddp::buildExchange(const FXCollective &start,
                               ProcessGroupOp group) {
  auto [made, result] = describe(start, *getStatedSize(group)).build(group);
  auto names = start.arguments.getAs<ArrayAttr>("names");
  if (isa<ReduceScatterOp>(made) && names &&
      !cast<StringAttr>(names[0]).empty())
    made->setAttr(DDPDialect::kNameAttrName, names[0]);
  return result;
}
