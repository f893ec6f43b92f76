// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-import-stablehlo: converts the sums in JAX programs to ddp.all_reduce, in
// the program that one rank runs.

#include "../Utils/Accumulators.h"
#include "ImportSteps.h"
#include "NonGradients.h"
#include "StableHLO.h"
#include "ddphook/Dialect/DDP/IR/ElementTypes.h"
#include "ddphook/Dialect/DDP/IR/Remarks.h"

#define GEN_PASS_DEF_DDPIMPORTSTABLEHLOPASS
#include "ddphook/Conversion/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
struct Sum {
  Operation *op;
  ArrayAttr groups;
  /// The results that are not gradients, whatever the options say.
  llvm::SmallBitVector statistics;
};

/// Imports one module.
class StableHLOImporter {
public:
  StableHLOImporter(ModuleOp module,
                    const DDPImportStableHLOPassOptions &options)
      : module(module), options(options), meshes(module),
        groups(module, meshes) {}
  LogicalResult run();

private:
  LogicalResult checkOptions() const;
  LogicalResult refuse(Operation *op, const Twine &reason) const;
  LogicalResult findSums();
  bool isWithinLoss(const Sum &sum) const;
  LogicalResult checkRepeated(const Sum &sum) const;
  bool isGradient(Value value, ArrayAttr groups) const;
  void import(const Sum &sum);
  void import(const Exchange &exchange);

  ModuleOp module;
  const DDPImportStableHLOPassOptions &options;
  Meshes meshes;
  ReplicaGroups groups;
  std::vector<Sum> sums;
  std::vector<Exchange> exchanges;
  /// Indices in `sums` of their operations.
  DenseMap<Operation *, size_t> numbers;
  std::vector<AllReduceOp> imported;
};
} // namespace

LogicalResult StableHLOImporter::checkOptions() const {
  for (const std::string &name : options.gradientAxes)
    if (llvm::none_of(meshes.getAll(),
                      [&](const Mesh &mesh) { return mesh.find(name); }))
      return ModuleOp(module).emitError()
             << "expected gradient-axes to be axes of a mesh, but got '" << name
             << "'"
             << (meshes.getAll().empty()
                     ? "; the module has none, as 'sdy-drop-sharding-and-mesh' "
                       "leaves it"
                     : "");
  return success();
}

/// Returns the inherent and discardable attributes of `op`.
static SmallVector<NamedAttribute> getAttributes(Operation *op) {
  SmallVector<NamedAttribute> attributes(op->getDiscardableAttrs());
  if (auto own =
          dyn_cast_or_null<DictionaryAttr>(op->getPropertiesAsAttribute()))
    llvm::append_range(attributes, own);
  return attributes;
}

static bool isOfDialect(NamedAttribute attribute) {
  return attribute.getName().strref().contains('.');
}

/// Returns why `op` is not a sum that ddp has, or an empty text if it is.
static std::string judge(Operation *op) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  for (NamedAttribute attribute : getAttributes(op))
    if (!llvm::is_contained(
            {"channel_handle", "replica_groups", "use_global_device_ids"},
            attribute.getName().strref()) &&
        !isOfDialect(attribute)) {
      stream << "expected no attribute '" << attribute.getName().strref()
             << "'";
      return text;
    }
  if (op->getNumOperands() == 0 || op->getNumRegions() != 1 ||
      op->hasSuccessors() || op->getOperandTypes() != op->getResultTypes())
    return "expected operands, results of the same types, and one region";
  for (Type type : op->getOperandTypes()) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (!tensor || !tensor.hasStaticShape() ||
        !isDtype(tensor.getElementType())) {
      stream << "expected statically shaped tensors of " << getDtypeNames()
             << ", but got '" << type << "'";
      return text;
    }
    Type number = RankedTensorType::get({}, tensor.getElementType());
    std::optional<StringRef> combiner = matchCombiner(op->getRegion(0), number);
    if (combiner == "stablehlo.add")
      continue;
    stream << "expected a sum, but got ";
    if (combiner)
      stream << "'" << *combiner << "'";
    else
      stream << "another computation on '" << number << "'";
    return text;
  }
  // Regions of other operations might run once per element, or never.
  Operation *parent = op->getParentOp();
  while (parent &&
         (isNamed(parent, "stablehlo.while") ||
          isNamed(parent, "stablehlo.case") || isNamed(parent, "stablehlo.if")))
    parent = parent->getParentOp();
  if (!isa_and_nonnull<func::FuncOp>(parent))
    stream << "expected it in a function, a loop or a branch, but it is in '"
           << parent->getName() << "'";
  return text;
}

static StringRef getRemedy(Operation *op) {
  if (op->getName().getDialectNamespace() == "mhlo")
    return "expected StableHLO, but got MHLO";
  if (isNamed(op, "stablehlo.partition_id") ||
      isNamed(op, "stablehlo.replica_id"))
    return "expected a program that does not need the rank's number, which "
           "compiled code does not know";
  StringRef name = op->getName().getStringRef();
  if (name.ends_with("_start") || name.ends_with("_done"))
    return "expected the collective as one operation, but got its start or its "
           "end; ddp-overlap splits collectives";
  return "expected all-reduces, reduce-scatters, all-gathers, all-to-alls and "
         "broadcasts only";
}

/// Reports `op` as an error or, with keep-others, leaves it with a remark.
LogicalResult StableHLOImporter::refuse(Operation *op,
                                        const Twine &reason) const {
  if (!options.keepOthers)
    return op->emitOpError() << reason << "; keep-others leaves it unchanged";
  remark::missed(op->getLoc(), remarkOf("Kept", "ddp-import-stablehlo"))
      << (op->getName().getStringRef() + ": " + reason).str();
  return success();
}

LogicalResult StableHLOImporter::findSums() {
  bool ok = true;
  module.walk([&](Operation *op) {
    if (std::optional<CollectiveKind> kind = getExchangeKind(op)) {
      Exchange exchange{{op, *kind}, {}};
      std::string obstacle = judgeChannel(op);
      if (obstacle.empty())
        obstacle = readExchange(exchange, groups);
      if (obstacle.empty())
        exchanges.push_back(exchange);
      else
        ok &= succeeded(refuse(op, obstacle));
      return;
    }
    if (!isNamed(op, "stablehlo.all_reduce")) {
      if (isCollective(op))
        ok &= succeeded(refuse(op, getRemedy(op)));
      return;
    }
    Sum sum{op, {}, llvm::SmallBitVector(op->getNumResults())};
    std::string obstacle = judge(op);
    if (obstacle.empty())
      obstacle = judgeChannel(op);
    if (obstacle.empty())
      obstacle = groups.read(op, sum.groups);
    if (!obstacle.empty()) {
      ok &= succeeded(refuse(op, obstacle));
      return;
    }
    numbers[op] = sums.size();
    sums.push_back(sum);
  });
  return success(ok);
}

/// Returns true if the same ranks also add up non-scalar values computed from
/// `sum`. It is then part of a loss, such as batch statistics, whose gradient
/// JAX computes with another sum.
bool StableHLOImporter::isWithinLoss(const Sum &sum) const {
  SetVector<Operation *> users(sum.op->user_begin(), sum.op->user_end());
  for (unsigned i = 0; i < users.size(); ++i) {
    Operation *user = users[i];
    auto it = numbers.find(user);
    if (it != numbers.end() &&
        ReplicaGroups::overlap(sums[it->second].groups, sum.groups) &&
        llvm::any_of(user->getOperandTypes(), [](Type type) {
          return cast<RankedTensorType>(type).getRank() != 0;
        }))
      return true;
    users.insert_range(user->getUsers());
    // A region yields the results of its operation.
    if (user->getNumResults() == 0 && !isa<func::ReturnOp>(user))
      users.insert_range(user->getParentOp()->getUsers());
  }
  return false;
}

/// Rejects a sum of values that are equal on all ranks of its group because
/// they already are such a sum.
LogicalResult StableHLOImporter::checkRepeated(const Sum &sum) const {
  for (Value value : sum.op->getOperands()) {
    // Values in malformed programs may depend on themselves.
    llvm::DenseSet<Value> seen;
    while (value && seen.insert(value).second) {
      auto result = dyn_cast<OpResult>(value);
      if (!result)
        break;
      auto it = numbers.find(result.getOwner());
      if (it == numbers.end()) {
        value = getOnlySource(result.getOwner());
        continue;
      }
      const Sum &earlier = sums[it->second];
      value = earlier.op->getOperand(result.getResultNumber());
      if (!ReplicaGroups::overlap(earlier.groups, sum.groups) ||
          isWithinLoss(sum))
        continue;
      InFlightDiagnostic diagnostic =
          sum.op->emitOpError()
          << "expected a value that is not reduced over the same ranks yet; "
             "allow-repeated=true reduces it again";
      diagnostic.attachNote(earlier.op->getLoc())
          << "this '" << earlier.op->getName() << "' has reduced it";
      return diagnostic;
    }
  }
  return success();
}

/// Returns true if hooks may compress the reduction of `value`.
bool StableHLOImporter::isGradient(Value value, ArrayAttr lists) const {
  if (cast<RankedTensorType>(value.getType()).getRank() == 0)
    return false;
  if (options.gradientAxes.empty())
    return true;
  SmallVector<StringRef> axes = groups.getAxes(lists);
  return !axes.empty() && llvm::all_of(axes, [&](StringRef axis) {
    return llvm::is_contained(options.gradientAxes, axis);
  });
}

void StableHLOImporter::import(const Sum &sum) {
  OpBuilder builder(sum.op);
  Location loc = sum.op->getLoc();
  ProcessGroupOp group = groups.get(sum.groups, module.getLoc());
  SmallVector<NamedAttribute> kept = getAttributes(sum.op);
  llvm::erase_if(kept, [](NamedAttribute a) { return !isOfDialect(a); });
  SmallVector<AllReduceOp> members;
  for (auto [operand, result] :
       llvm::zip_equal(sum.op->getOperands(), sum.op->getResults())) {
    members.push_back(
        AllReduceOp::create(builder, loc, operand, group, Reduction::Sum));
    members.back()->setDiscardableAttrs(kept);
    result.replaceAllUsesWith(members.back().getResult());
  }
  // Folding a mean looks at all uses, so erase the sum's first.
  sum.op->erase();
  for (auto [i, member] : llvm::enumerate(members)) {
    bool isExact =
        sum.statistics[i] || !isGradient(member.getInput(), sum.groups);
    if (isExact)
      member.setHook(AllReduceHookAttr::get(module.getContext()));
    bool isMean = foldStableHLOMean(member, ReplicaGroups::getSize(sum.groups));
    remark::passed(loc, remarkOf("Reduction", "ddp-import-stablehlo"))
        << member.getGroup() << remark::metric("exact", isExact)
        << remark::metric("mean", isMean);
  }
  llvm::append_range(imported, members);
}

void StableHLOImporter::import(const Exchange &exchange) {
  Operation *op = exchange.op;
  ProcessGroupOp group = groups.get(exchange.groups, module.getLoc());
  bool isExact = exchange.kind == CollectiveKind::ReduceScatter &&
                 !isGradient(op->getOperand(0), exchange.groups);
  remark::passed(op->getLoc(), remarkOf("Exchange", "ddp-import-stablehlo"))
      << group.getSymName() << remark::metric("exact", isExact);
  importExchange(exchange, group,
                 isExact ? AllReduceHookAttr::get(module.getContext())
                         : Attribute());
}

LogicalResult StableHLOImporter::run() {
  bool ok = succeeded(checkOptions());
  // Check before inlining, which duplicates collectives.
  ok &= succeeded(checkSharedChannels(module));
  if (failed(localize(module, meshes)))
    return failure();
  ok &= succeeded(findSums());
  if (!options.allowRepeated)
    for (const Sum &sum : sums)
      ok &= succeeded(checkRepeated(sum));
  if (!ok)
    return failure();
  ValueFlow flow(module);
  NonGradients statistics(flow);
  for (Sum &sum : sums)
    for (OpResult result : sum.op->getResults())
      if (statistics.contains(result))
        sum.statistics.set(result.getResultNumber());
  for (Sum &sum : sums)
    for (OpResult result : sum.op->getResults())
      if (statistics.isAverage(result) || statistics.isMetric(result))
        sum.statistics.set(result.getResultNumber());
  for (const Sum &sum : sums)
    import(sum);
  for (const Exchange &exchange : exchanges)
    import(exchange);
  nameGradients(module, flow, imported);
  return success();
}

namespace {
struct ImportStableHLOPass
    : public ddp::impl::DDPImportStableHLOPassBase<ImportStableHLOPass> {
  using DDPImportStableHLOPassBase::DDPImportStableHLOPassBase;

  void runOnOperation() override {
    DDPImportStableHLOPassOptions options;
    options.gradientAxes = llvm::to_vector(gradientAxes);
    options.allowRepeated = allowRepeated;
    options.keepOthers = keepOthers;
    if (failed(StableHLOImporter(getOperation(), options).run()))
      return signalPassFailure();
    if (!keepAccumulators)
      requestWideAccumulators(getOperation());
  }
};
} // namespace
