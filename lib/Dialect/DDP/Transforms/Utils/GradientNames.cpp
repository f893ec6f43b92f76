// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Names gradients. A name depends only on the program, not on any option: names
// are assigned before there are buckets, in program order.

#include "GradientNames.h"
#include "../../Analysis/ProgramWalk.h"

#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/JSON.h"

using namespace mlir;
using namespace mlir::ddp;

/// Returns the function argument that is `value`, or nullopt.
static std::optional<std::pair<FunctionOpInterface, unsigned>>
getArgument(Value value) {
  auto argument = dyn_cast<BlockArgument>(value);
  if (!argument || !argument.getOwner()->isEntryBlock())
    return std::nullopt;
  auto function =
      dyn_cast<FunctionOpInterface>(argument.getOwner()->getParentOp());
  if (!function)
    return std::nullopt;
  return std::pair(function, argument.getArgNumber());
}

/// Returns the name that a function argument was given, or null.
static StringAttr getArgumentName(Value value) {
  auto argument = getArgument(value);
  return argument ? argument->first.getArgAttrOfType<StringAttr>(
                        argument->second, DDPDialect::kNameAttrName)
                  : StringAttr();
}

/// Returns the first name in a location, or an empty string.
static StringRef getNameIn(Location location) {
  StringRef name;
  location->walk([&](Location nested) {
    if (auto named = dyn_cast<NameLoc>(nested))
      name = named.getName().getValue();
    return name.empty() ? WalkResult::advance() : WalkResult::interrupt();
  });
  return name;
}

/// Returns the index of a value among its function's results, or nullopt.
static std::optional<unsigned> getResultNumber(Value value) {
  for (OpOperand &use : value.getUses())
    if (isReturn(use.getOwner()))
      return use.getOperandNumber();
  return std::nullopt;
}

namespace {
class Namer {
public:
  explicit Namer(ModuleOp module) : module(module) {}
  LogicalResult run();
  StringAttr nameAverage(AverageOp op);

private:
  LogicalResult reserve(StringAttr name, Operation *owner);
  LogicalResult reserveArguments(FunctionOpInterface function);
  LogicalResult reserveGiven(Operation *op);
  std::string derive(Operation *op, Value input, Value result, StringRef word);
  StringAttr makeUnique(StringRef name);
  void nameArray(CollectiveOpInterface op);
  void nameMembers(AllReduceOp op, BucketType bucket);

  ModuleOp module;
  /// Names in use, and their owners.
  llvm::StringMap<Operation *> taken;
  /// Names of arguments that a reduction already uses.
  llvm::StringSet<> usedArguments;
  llvm::StringMap<unsigned> numCopies;
  /// The number of reductions so far, by function.
  llvm::DenseMap<Operation *, unsigned> numReductions;
};
} // namespace

LogicalResult Namer::reserve(StringAttr name, Operation *owner) {
  auto [it, isNew] = taken.try_emplace(name.getValue(), owner);
  if (isNew)
    return success();
  return (owner->emitOpError()
          << "expected unique gradient names, but got " << name << " twice")
             .attachNote(it->second->getLoc())
         << "the name is first used here";
}

LogicalResult Namer::reserveArguments(FunctionOpInterface function) {
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    if (auto name =
            function.getArgAttrOfType<StringAttr>(i, DDPDialect::kNameAttrName))
      if (failed(reserve(name, function)))
        return failure();
  return success();
}

/// Reserves the given names of `op` and of records of buckets.
LogicalResult Namer::reserveGiven(Operation *op) {
  if (auto reduction = dyn_cast<CollectiveOpInterface>(op)) {
    auto name = op->getAttrOfType<StringAttr>(DDPDialect::kNameAttrName);
    // A single reduction may have the name of its argument.
    if (name && (name != getArgumentName(reduction.getInput()) ||
                 !usedArguments.insert(name).second))
      return reserve(name, op);
  }
  ArrayAttr members;
  if (auto allReduce = dyn_cast<AllReduceOp>(op))
    members = allReduce.getGradientsAttr();
  if (auto info = dyn_cast<BucketInfoOp>(op))
    members = info.getGradientsAttr();
  if (!members)
    return success();
  for (StringAttr name : members.getAsRange<StringAttr>()) {
    // An earlier pass put an argument's gradient into the bucket.
    auto it = taken.find(name);
    if (it != taken.end() && isa<FunctionOpInterface>(it->second) &&
        usedArguments.insert(name).second)
      continue;
    if (failed(reserve(name, op)))
      return failure();
  }
  return success();
}

/// Derives a name for the `word` (a gradient, say) of a function that computes
/// `result` from `input`. It need not be unique.
std::string Namer::derive(Operation *op, Value input, Value result,
                          StringRef word) {
  auto function = op->getParentOfType<FunctionOpInterface>();
  unsigned number = numReductions[function]++;
  StringRef name = getNameIn(op->getLoc());
  if (name.empty() && isa<BlockArgument>(input))
    name = getNameIn(input.getLoc());
  if (!name.empty())
    return llvm::json::fixUTF8(name);
  std::string prefix = function ? function.getName().str() + "." : "";
  if (auto argument = getArgument(input))
    return prefix + "arg" + std::to_string(argument->second);
  if (result)
    if (std::optional<unsigned> place = getResultNumber(result))
      return prefix + "result" + std::to_string(*place);
  return prefix + word.str() + std::to_string(number);
}

/// Returns `name`, or if that is taken `name`#1 and so on.
StringAttr Namer::makeUnique(StringRef name) {
  if (taken.try_emplace(name, module).second)
    return StringAttr::get(module.getContext(), name);
  unsigned &number = numCopies[name];
  std::string unique;
  do
    unique = (name + "#" + Twine(++number)).str();
  while (!taken.try_emplace(unique, module).second);
  return StringAttr::get(module.getContext(), unique);
}

void Namer::nameArray(CollectiveOpInterface op) {
  Value result = op->getNumResults() == 0 ? Value() : op->getResult(0);
  std::string derived = derive(op, op.getInput(), result, "gradient");
  if (op->hasAttr(DDPDialect::kNameAttrName))
    return;
  StringAttr name = getArgumentName(op.getInput());
  if (!name)
    name = makeUnique(derived);
  else if (!usedArguments.insert(name).second)
    name = makeUnique(name);
  op->setAttr(DDPDialect::kNameAttrName, name);
}

void Namer::nameMembers(AllReduceOp op, BucketType bucket) {
  SmallVector<Attribute> names;
  for (unsigned i = 0; i < bucket.getNumMembers(); ++i)
    names.push_back(makeUnique((*op.getBucketName() + "." + Twine(i)).str()));
  op.setGradientsAttr(ArrayAttr::get(op.getContext(), names));
}

LogicalResult Namer::run() {
  // Reserve the names given in the module first, wherever they are.
  WalkResult result = walkFunctions(module, [&](FunctionOpInterface function) {
    return WalkResult(reserveArguments(function));
  });
  if (result.wasInterrupted())
    return failure();
  bool ok = true;
  SmallVector<AllReduceOp> reductions;
  SmallVector<ReduceScatterOp> scatters;
  walkProgram(module, [&](Operation *op) {
    if (auto reduction = dyn_cast<AllReduceOp>(op))
      reductions.push_back(reduction);
    else if (auto scatter = dyn_cast<ReduceScatterOp>(op))
      scatters.push_back(scatter);
    else if (!isa<BucketInfoOp>(op))
      return;
    ok = ok && succeeded(reserveGiven(op));
  });
  if (!ok)
    return failure();
  for (AllReduceOp op : reductions) {
    Type type = op.getInput().getType();
    auto bucket = dyn_cast<BucketType>(type);
    bool isFinal = isa_and_nonnull<AllReduceHookAttr>(
        op->getAttr(DDPDialect::kHookAttrName));
    if (isa<RankedTensorType, MemRefType>(type))
      nameArray(op);
    else if (bucket && op.getBucketName() && !op.getGradients() && !isFinal)
      nameMembers(op, bucket);
  }
  // After all others, whose names do not depend on these.
  for (ReduceScatterOp op : scatters) {
    bool isFinal = isa_and_nonnull<AllReduceHookAttr>(
        op->getAttr(DDPDialect::kHookAttrName));
    if (isFinal)
      continue;
    nameArray(op);
    auto bucket = dyn_cast<BucketType>(op.getInput().getType());
    if (!bucket)
      continue;
    auto name = op->getAttrOfType<StringAttr>(DDPDialect::kNameAttrName);
    for (Attribute member : getMemberNames(name, bucket))
      if (failed(reserve(cast<StringAttr>(member), op)))
        return failure();
  }
  return success();
}

StringAttr Namer::nameAverage(AverageOp op) {
  std::string derived = derive(op, op.getInput(), op.getResult(), "average");
  StringAttr name = getArgumentName(op.getInput());
  return makeUnique(name ? name.getValue() : StringRef(derived));
}

LogicalResult mlir::ddp::nameGradients(ModuleOp module) {
  return Namer(module).run();
}

SmallVector<Attribute> mlir::ddp::getMemberNames(StringAttr name,
                                                 BucketType bucket) {
  SmallVector<Attribute> names;
  for (unsigned i = 0; i < bucket.getNumMembers(); ++i)
    names.push_back(
        StringAttr::get(name.getContext(), name.getValue() + "." + Twine(i)));
  return names;
}

llvm::DenseMap<Operation *, StringAttr>
mlir::ddp::nameAverages(ModuleOp module) {
  llvm::DenseMap<Operation *, StringAttr> names;
  Namer namer(module);
  walkProgram(module, [&](AverageOp op) { names[op] = namer.nameAverage(op); });
  return names;
}
