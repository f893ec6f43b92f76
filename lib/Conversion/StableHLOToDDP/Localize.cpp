// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Operations outside a manual computation work on whole tensors. Each rank can
// compute them in full if it has all of their operands. A split tensor may only
// be a result of a manual computation or an argument of the function, and may
// only be an operand of a manual computation or a result of the function.

#include "../Utils/InlineFunctions.h"
#include "ImportSteps.h"
#include "StableHLO.h"
#include "ddphook/Dialect/DDP/IR/DDP.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace mlir::ddp;

static constexpr StringLiteral kManualComputation = "sdy.manual_computation";
static constexpr StringLiteral kSharding = "sdy.sharding";
static constexpr StringLiteral kConstraint = "sdy.sharding_constraint";

namespace {
/// Converts the manual computations of one function.
class Localizer {
public:
  Localizer(func::FuncOp function, const Meshes &meshes)
      : function(function), meshes(meshes) {}
  LogicalResult run();

private:
  LogicalResult check(Operation *op);
  LogicalResult notePart(Operation *op, const Twine &what, Value value,
                         Type part, const Sharding &sharding);
  void bypassConstraints();
  LogicalResult checkUses(Value value) const;
  LogicalResult checkSignature(const Twine &what, Value value,
                               Attribute attribute) const;
  bool isReturn(Operation *op) const {
    return isa<func::ReturnOp>(op) && op->getParentOp() == function;
  }
  LogicalResult unwrap(Operation *op) const;

  mutable func::FuncOp function;
  const Meshes &meshes;
  SmallVector<Operation *> computations;
  /// Constraints that were bypassed and have no uses.
  SetVector<Operation *> constraints;
  /// Values that are split, with the type and the sharding of a rank's shard.
  llvm::MapVector<Value, std::pair<Type, Sharding>> parts;
  /// Values that are equal on all ranks.
  llvm::DenseSet<Value> whole;
};
} // namespace

/// Checks that `part` is one rank's shard of `value`, and records whether it is
/// split or whole.
LogicalResult Localizer::notePart(Operation *op, const Twine &what, Value value,
                                  Type part, const Sharding &sharding) {
  Type type = value.getType();
  auto from = dyn_cast<RankedTensorType>(type);
  auto to = dyn_cast<RankedTensorType>(part);
  bool ok = type == part && sharding.isReplicated();
  if (from && to && from.hasStaticShape() && to.hasStaticShape() &&
      from.getElementType() == to.getElementType() &&
      from.getRank() == to.getRank() &&
      from.getRank() == int64_t(sharding.dimensions.size()))
    ok = llvm::all_of(llvm::seq<unsigned>(from.getRank()), [&](unsigned i) {
      return from.getDimSize(i) % sharding.getNumParts(i) == 0 &&
             from.getDimSize(i) / sharding.getNumParts(i) == to.getDimSize(i);
    });
  if (!ok)
    return op->emitOpError() << "expected " << what
                             << " to be split as its sharding says, but got "
                             << part << " of " << type;
  if (type == part) {
    whole.insert(value);
    return success();
  }
  auto [it, isNew] = parts.insert({value, {part, sharding}});
  if (isNew || (it->second.first == part && it->second.second == sharding))
    return success();
  return op->emitOpError()
         << "expected a tensor to be split in the same way everywhere, but got "
         << part << " and " << it->second.first << " for one value";
}

/// Repeats the checks of the dialect's own verifier, and records which values
/// are split.
LogicalResult Localizer::check(Operation *op) {
  if (op->getNumRegions() != 1 || !op->getRegion(0).hasOneBlock())
    return op->emitOpError() << "expected a region of one block";
  Block &body = op->getRegion(0).front();
  std::optional<OperandRange> yielded = getYielded(body, "sdy.return");
  auto axes = readManualAxes(op->getAttr("manual_axes"));
  auto in = readShardings(op->getAttr("in_shardings"), meshes);
  auto out = readShardings(op->getAttr("out_shardings"), meshes);
  if (!yielded || !axes || !in || !out || in->size() != op->getNumOperands() ||
      body.getNumArguments() != op->getNumOperands() ||
      out->size() != op->getNumResults() ||
      yielded->size() != op->getNumResults())
    return op->emitOpError() << "expected shardings along whole axes of a mesh "
                                "of the module, for "
                                "each operand and result";
  for (const Sharding &sharding : llvm::concat<Sharding>(*in, *out))
    for (const Mesh::Axis &axis : sharding.mesh.axes)
      if (axis.size != 1 && !llvm::is_contained(*axes, axis.name))
        return op->emitOpError() << "expected all of the mesh's axes to be "
                                    "manual, but \""
                                 << axis.name
                                 << "\" is not; in JAX, 'shard_map' without "
                                    "'axis_names' makes them so";
  for (auto [i, sharding] : llvm::enumerate(*in))
    if (failed(notePart(op, "operand #" + Twine(i), op->getOperand(i),
                        body.getArgument(i).getType(), sharding)))
      return failure();
  for (auto [i, sharding] : llvm::enumerate(*out))
    if (failed(notePart(op, "result #" + Twine(i), op->getResult(i),
                        (*yielded)[i].getType(), sharding)))
      return failure();
  return success();
}

/// Replaces the result of each constraint by its operand, which has the same
/// elements. Its sharding is checked later, once it is known.
void Localizer::bypassConstraints() {
  function.walk([&](Operation *op) {
    if (!isNamed(op, kConstraint) || op->getNumOperands() != 1 ||
        op->getOperandTypes() != op->getResultTypes() ||
        op->getOperand(0).getDefiningOp() == op)
      return;
    op->replaceAllUsesWith(op->getOperands());
    constraints.insert(op);
  });
}

/// Checks that all users of a split value expect a shard.
LogicalResult Localizer::checkUses(Value value) const {
  Operation *owner = value.getDefiningOp();
  bool isArgument = llvm::is_contained(function.getArguments(), value);
  if (!isArgument && !(owner && isNamed(owner, kManualComputation)))
    return (owner ? owner : value.getParentBlock()->getParentOp())
               ->emitOpError()
           << "expected a split value to be an argument of the function or the "
              "result of a '"
           << kManualComputation
           << "'; in JAX, put the loop or branch inside 'shard_map'";
  const auto &[part, sharding] = parts.find(value)->second;
  for (Operation *user : value.getUsers()) {
    if (constraints.contains(user)) {
      auto said = readSharding(user->getAttr("sharding"), meshes);
      if (!said || !said->allows(sharding))
        return user->emitOpError()
               << "expected its operand to be split as in its '"
               << kManualComputation << "'";
    } else if (!isNamed(user, kManualComputation) && !isReturn(user)) {
      return user->emitOpError()
             << "expected an operand that every rank has in full, but it is "
                "split; move the operation into the '"
             << kManualComputation << "'";
    }
  }
  // Other computations may expect the whole value.
  for (OpOperand &use : value.getUses())
    if (isNamed(use.getOwner(), kManualComputation) &&
        use.getOwner()
                ->getRegion(0)
                .getArgument(use.getOperandNumber())
                .getType() != part)
      return use.getOwner()->emitOpError()
             << "expected operand #" << use.getOperandNumber()
             << " to be split as it is elsewhere";
  return success();
}

/// Checks that the function's sharding of an argument or result matches that of
/// its manual computations. Otherwise JAX would move elements between devices.
LogicalResult Localizer::checkSignature(const Twine &what, Value value,
                                        Attribute attribute) const {
  auto it = parts.find(value);
  if (it == parts.end() || !attribute)
    return success();
  std::optional<Sharding> sharding = readSharding(attribute, meshes);
  if (sharding && sharding->allows(it->second.second))
    return success();
  return function.emitOpError()
         << "expected " << what << " to be split as in its '"
         << kManualComputation << "', but got " << getText(attribute);
}

LogicalResult Localizer::unwrap(Operation *op) const {
  Block &body = op->getRegion(0).front();
  SmallVector<Value> yielded(body.back().getOperands());
  body.back().erase();
  for (auto [argument, operand] :
       llvm::zip_equal(body.getArguments(), op->getOperands()))
    argument.replaceAllUsesWith(operand);
  // An argument may be yielded directly.
  for (auto [i, value] : llvm::enumerate(yielded))
    if (auto argument = dyn_cast<BlockArgument>(value);
        argument && argument.getOwner() == &body)
      yielded[i] = op->getOperand(argument.getArgNumber());
  op->getBlock()->getOperations().splice(op->getIterator(),
                                         body.getOperations());
  return replaceByValues(op, yielded);
}

/// Lets `edit` change the attributes of each argument and result. Setting them
/// one by one would rebuild the list each time.
static LogicalResult editAttributes(
    func::FuncOp function,
    function_ref<LogicalResult(bool isArgument, unsigned i, NamedAttrList &)>
        edit) {
  for (bool isArgument : {true, false}) {
    SmallVector<DictionaryAttr> attributes;
    unsigned count =
        isArgument ? function.getNumArguments() : function.getNumResults();
    for (unsigned i = 0; i < count; ++i) {
      NamedAttrList list(isArgument ? function.getArgAttrDict(i)
                                    : function.getResultAttrDict(i));
      if (failed(edit(isArgument, i, list)))
        return failure();
      attributes.push_back(list.getDictionary(function.getContext()));
    }
    if (isArgument)
      function.setAllArgAttrs(attributes);
    else
      function.setAllResultAttrs(attributes);
  }
  return success();
}

LogicalResult Localizer::run() {
  bypassConstraints();
  WalkResult result = function.walk([&](Operation *op) {
    if (!isNamed(op, kManualComputation))
      return WalkResult::advance();
    computations.push_back(op);
    for (Operation *parent = op->getParentOp(); parent != function;
         parent = parent->getParentOp())
      if (isNamed(parent, kManualComputation)) {
        op->emitOpError() << "expected no nested manual computations";
        return WalkResult::interrupt();
      }
    return failed(check(op)) ? WalkResult::interrupt() : WalkResult::advance();
  });
  if (result.wasInterrupted())
    return failure();
  if (computations.empty())
    return success();
  if (!function.getBody().hasOneBlock() ||
      !isReturn(&function.getBody().front().back()))
    return function.emitOpError() << "expected a function of one block";
  for (auto &[value, part] : parts)
    if (failed(checkUses(value)))
      return failure();
  for (auto [i, argument] : llvm::enumerate(function.getArguments()))
    if (failed(checkSignature("argument #" + Twine(i), argument,
                              function.getArgAttr(i, kSharding))))
      return failure();
  llvm::SmallBitVector isSplit(function.getNumResults());
  for (OpOperand &operand : function.getBody().front().back().getOpOperands()) {
    unsigned i = operand.getOperandNumber();
    if (failed(checkSignature("result #" + Twine(i), operand.get(),
                              function.getResultAttr(i, kSharding))))
      return failure();
    if (parts.contains(operand.get()))
      isSplit.set(i);
  }
  for (Operation *op : constraints)
    if (parts.contains(op->getOperand(0)))
      op->erase();
  for (auto &[value, part] : parts)
    value.setType(part.first);
  for (Operation *op : computations)
    if (failed(unwrap(op)))
      return failure();
  Block &body = function.getBody().front();
  function.setType(FunctionType::get(function.getContext(),
                                     body.getArgumentTypes(),
                                     body.back().getOperandTypes()));
  return editAttributes(
      function, [&](bool isArgument, unsigned i, NamedAttrList &list) {
        // A value that is whole in the mesh is equal on all ranks.
        if (isArgument && whole.contains(body.getArgument(i)))
          list.set(DDPDialect::kReplicatedAttrName,
                   UnitAttr::get(function.getContext()));
        if (isArgument ? parts.contains(body.getArgument(i)) : isSplit.test(i))
          list.erase(kSharding);
        return success();
      });
}

/// Returns true if the attribute declares a tensor whole on each rank.
static bool saysReplicated(Attribute attribute, const Meshes &meshes) {
  if (std::optional<Sharding> sharding = readSharding(attribute, meshes))
    return sharding->isReplicated();
  auto shardings = readShardings(attribute, meshes);
  return shardings && llvm::all_of(*shardings, [](const Sharding &sharding) {
           return sharding.isReplicated();
         });
}

/// Returns true if these attributes contain shardings of GSPMD, or of Shardy as
/// encoded for other formats.
static bool saysSplit(const NamedAttrList &attributes) {
  auto sharding = dyn_cast_or_null<StringAttr>(attributes.get("mhlo.sharding"));
  if (sharding && sharding != "{replicated}")
    return true;
  auto frontend = dyn_cast_or_null<DictionaryAttr>(
      attributes.get("mhlo.frontend_attributes"));
  return frontend && llvm::any_of(frontend, [](NamedAttribute attribute) {
           return attribute.getName().strref().starts_with("xla.sdy.");
         });
}

/// Returns true if `op` converts between a whole tensor and a rank's shard.
static bool isShardingCall(Operation *op) {
  auto target = dyn_cast_or_null<StringAttr>(op->getAttr("call_target_name"));
  if (!target || !isNamed(op, "stablehlo.custom_call"))
    return false;
  return target.getValue().starts_with("xla.sdy.") ||
         llvm::is_contained(
             {"Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"},
             target.getValue());
}

static LogicalResult refuseSplit(Operation *op, const Twine &what) {
  return op->emitOpError()
         << "expected a program of one rank's tensors, but got " << what
         << "; first run Shardy's passes up to 'sdy-convert-global-to-local'";
}

/// Removes Shardy's attributes, such as an operation's sharding rule, which
/// have no meaning in a program of one rank. Fails if they or those of XLA
/// split anything.
static LogicalResult dropShardings(Operation *op, const Twine &what,
                                   NamedAttrList &attributes,
                                   const Meshes &meshes) {
  if (saysSplit(attributes))
    return refuseSplit(op, what);
  Attribute sharding = attributes.get(kSharding);
  if (sharding && !saysReplicated(sharding, meshes))
    return refuseSplit(op, getText(sharding));
  for (NamedAttribute attribute : llvm::to_vector(attributes.getAttrs()))
    if (attribute.getName().strref().starts_with("sdy."))
      attributes.erase(attribute.getName());
  return success();
}

static LogicalResult dropRest(ModuleOp module, const Meshes &meshes) {
  SmallVector<Operation *> dead;
  WalkResult result = module.walk([&](Operation *op) {
    auto edit = [&](bool isArgument, unsigned, NamedAttrList &list) {
      return dropShardings(op,
                           isArgument ? "an argument with an XLA sharding"
                                      : "a result with an XLA sharding",
                           list, meshes);
    };
    DictionaryAttr attributes = op->getDiscardableAttrDictionary();
    NamedAttrList list(attributes);
    auto function = dyn_cast<func::FuncOp>(op);
    if ((function && failed(editAttributes(function, edit))) ||
        failed(dropShardings(op, "an XLA sharding", list, meshes)))
      return WalkResult::interrupt();
    for (NamedAttribute attribute : attributes)
      if (!list.get(attribute.getName()))
        op->removeDiscardableAttr(attribute.getName());
    if (isShardingCall(op)) {
      (void)refuseSplit(op, "an XLA sharding");
      return WalkResult::interrupt();
    }
    if (op->getName().getDialectNamespace() != "sdy")
      return WalkResult::advance();
    bool isConstraint = isNamed(op, kConstraint) && op->getNumOperands() == 1 &&
                        op->getOperandTypes() == op->getResultTypes() &&
                        saysReplicated(op->getAttr("sharding"), meshes);
    bool isMesh = isNamed(op, "sdy.mesh") && op->getNumOperands() == 0 &&
                  op->getNumResults() == 0;
    if (!isConstraint && !isMesh) {
      (void)refuseSplit(op, "'" + op->getName().getStringRef() + "'");
      return WalkResult::interrupt();
    }
    dead.push_back(op);
    return WalkResult::advance();
  });
  if (result.wasInterrupted())
    return failure();
  for (Operation *op : dead)
    if (failed(replaceByValues(op, op->getOperands())))
      return failure();
  return success();
}

LogicalResult mlir::ddp::localize(ModuleOp module, const Meshes &meshes) {
  // Different calls may pass shards of different tensors to one manual
  // computation.
  auto isComputation = [](Operation *op) {
    return isNamed(op, kManualComputation);
  };
  if (failed(inlineFunctionsWith(module, isComputation,
                                 "a 'sdy.manual_computation'")))
    return failure();
  SmallVector<func::FuncOp> functions(module.getOps<func::FuncOp>());
  for (func::FuncOp function : functions)
    if (!function.isExternal() && failed(Localizer(function, meshes).run()))
      return failure();
  return dropRest(module, meshes);
}
