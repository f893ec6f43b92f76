// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-import-fx: converts PyTorch's functional all-reduces and their waits to
// ddp.all_reduce.

#include "../Utils/Accumulators.h"
#include "../Utils/Means.h"
#include "FXCollective.h"
#include "ddphook/Dialect/DDP/IR/ElementTypes.h"
#include "ddphook/Dialect/DDP/IR/Remarks.h"

#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/RegionUtils.h"

#define GEN_PASS_DEF_DDPIMPORTFXPASS
#include "ddphook/Conversion/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
/// Imports one module.
class FXImporter {
public:
  FXImporter(ModuleOp module, const DDPImportFXPassOptions &options)
      : module(module), options(options) {}
  LogicalResult run();

private:
  LogicalResult refuse(const FXCollective &collective,
                       const Twine &reason) const;
  LogicalResult findCollectives();
  std::string judge(const FXCollective &start);
  LogicalResult checkWait(const FXCollective &wait) const;
  LogicalResult checkAwaited(const FXCollective &start) const;
  LogicalResult checkRepeated(const FXCollective &start) const;
  void import(const FXCollective &start);
  void eraseUncalled();

  ModuleOp module;
  const DDPImportFXPassOptions &options;
  SymbolTableCollection symbols;
  std::vector<FXCollective> collectives;
  /// Indices in `collectives` of their operations.
  DenseMap<Operation *, size_t> numbers;
  /// Starts that become ddp operations.
  DenseSet<Operation *> imported;
};
} // namespace

/// Reports an unsupported collective or, with keep-others, leaves it.
LogicalResult FXImporter::refuse(const FXCollective &collective,
                                 const Twine &reason) const {
  if (!options.keepOthers)
    return collective.emitError() << reason;
  remark::missed(collective.op->getLoc(), remarkOf("Kept", "ddp-import-fx"))
      << (collective.target + ": " + reason).str();
  return success();
}

/// Returns why ddp has no equivalent of `start`; empty if it has one.
std::string FXImporter::judge(const FXCollective &start) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  StringRef kind = start.getString("reduce_op");
  if (start.isReduction() && kind != "sum" && kind != "avg") {
    stream << "expected reduce_op 'sum' or 'avg', but got ";
    Attribute given = start.arguments.get("reduce_op");
    if (!given)
      stream << "none";
    else if (isa<StringAttr>(given))
      stream << "'" << kind << "'";
    else
      stream << given;
    return text;
  }
  Operation *op = start.op;
  bool isAllReduce = start.getKind() == CollectiveKind::AllReduce;
  if (op->getNumOperands() == 0 || op->getNumRegions() != 0 ||
      (isAllReduce && op->getOperandTypes() != op->getResultTypes()))
    return "expected operands, and results of the same types";
  for (Type type : op->getOperandTypes()) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (tensor && tensor.hasStaticShape() && isDtype(tensor.getElementType()))
      continue;
    stream << "expected statically shaped tensors of " << getDtypeNames()
           << ", but got '" << type << "'";
    return text;
  }
  // Regions of other operations might run once per element, or never.
  Operation *parent = op->getParentOp();
  while (isa_and_nonnull<scf::SCFDialect>(parent->getDialect()))
    parent = parent->getParentOp();
  if (!isa<func::FuncOp>(parent)) {
    stream << "expected it in a function, a loop or a branch, but it is in '"
           << parent->getName() << "'";
    return text;
  }
  StringRef name = start.getString("group_name");
  ProcessGroupOp group;
  if (!name.empty())
    group = symbols.lookupSymbolIn<ProcessGroupOp>(
        module, StringAttr::get(module.getContext(), name));
  if (!group)
    stream << "expected a 'ddp.process_group' of the module, but got '" << name
           << "'";
  else if (!isAllReduce)
    stream << judgeExchange(start, getStatedSize(group));
  if (Attribute names = start.arguments.get("names")) {
    auto list = dyn_cast<ArrayAttr>(names);
    if (!list || list.size() != op->getNumOperands() ||
        !llvm::all_of(list, llvm::IsaPred<StringAttr>))
      return "expected names to be a string for each operand";
  }
  return text;
}

LogicalResult FXImporter::findCollectives() {
  module.walk([&](Operation *op) {
    if (auto collective = matchCollective(op, symbols)) {
      numbers[op] = collectives.size();
      collectives.push_back(*std::move(collective));
    }
  });
  bool ok = true;
  for (const FXCollective &collective : collectives) {
    if (collective.isWait())
      continue;
    std::string obstacle =
        collective.getKind()
            ? judge(collective)
            : "expected all-reduces, reduce-scatters, all-gathers, all-to-alls "
              "and broadcasts only";
    if (obstacle.empty())
      imported.insert(collective.op);
    else
      ok &= succeeded(refuse(collective, obstacle));
  }
  return success(ok);
}

LogicalResult FXImporter::checkWait(const FXCollective &wait) const {
  Operation *op = wait.op;
  if (op->getNumOperands() != 1 || op->getNumRegions() != 0 ||
      op->getOperandTypes() != op->getResultTypes())
    return wait.emitError() << "expected an operand, and a result of its type";
  auto it = numbers.find(op->getOperand(0).getDefiningOp());
  if (it == numbers.end() || collectives[it->second].isWait())
    return wait.emitError()
           << "expected the result of a collective that was started";
  return success();
}

/// Checks that only waits use the results of `start`.
LogicalResult FXImporter::checkAwaited(const FXCollective &start) const {
  for (Value result : start.op->getResults()) {
    if (result.use_empty())
      return start.emitError() << "expected a wait for its result";
    for (Operation *user : result.getUsers()) {
      auto it = numbers.find(user);
      if (it != numbers.end() && collectives[it->second].isWait())
        continue;
      InFlightDiagnostic diagnostic = start.emitError();
      diagnostic << "expected its result to be used by waits only";
      diagnostic.attachNote(user->getLoc())
          << "'" << user->getName() << "' uses it";
      return diagnostic;
    }
  }
  return success();
}

static bool isConstant(Value value) {
  return matchPattern(value, m_Constant()) ||
         value.getDefiningOp<tensor::EmptyOp>();
}

/// Returns the only operand of `op` other than constants. Returns null if there
/// are several or the operation is unknown.
static Value getOnlySource(Operation *op) {
  // PyTorch's operators with a single tensor operand compute only from it.
  bool isOperator = op->getName().getStringRef().starts_with("torch.");
  if (op->getNumRegions() != 0 ? !isa<linalg::LinalgOp>(op)
                               : !isOperator && !isMemoryEffectFree(op))
    return {};
  SetVector<Value> used(op->operand_begin(), op->operand_end());
  getUsedValuesDefinedAbove(op->getRegions(), used);
  // The initial value of a linalg operation may be a filled constant.
  used.remove_if([](Value value) {
    auto fill = value.getDefiningOp<linalg::FillOp>();
    return isConstant(fill ? fill.getInputs()[0] : value);
  });
  return used.size() == 1 ? used.front() : Value();
}

/// Rejects a reduction of values that are equal on all ranks of the group
/// because they were already reduced over it.
LogicalResult FXImporter::checkRepeated(const FXCollective &start) const {
  for (Value value : start.op->getOperands()) {
    // In unreachable blocks, values may depend on themselves.
    DenseSet<Value> seen;
    while (value && seen.insert(value).second) {
      Operation *op = value.getDefiningOp();
      auto it = numbers.find(op);
      if (it == numbers.end()) {
        value = op ? getOnlySource(op) : Value();
        continue;
      }
      const FXCollective &earlier = collectives[it->second];
      if (!earlier.isWait() &&
          (!earlier.isReduction() || !imported.contains(op)))
        break;
      value = op->getOperand(
          earlier.isWait() ? 0 : cast<OpResult>(value).getResultNumber());
      StringRef group = start.getString("group_name");
      if (earlier.isWait() || earlier.getString("group_name") != group)
        continue;
      InFlightDiagnostic diagnostic = start.emitError();
      diagnostic << "expected a value that is not reduced over group '" << group
                 << "' yet; allow-repeated=true reduces it again";
      diagnostic.attachNote(op->getLoc())
          << "this '" << earlier.target << "' has reduced it";
      return diagnostic;
    }
  }
  return success();
}

/// Replaces the results of the waits for `start` by `value`.
static void replaceWaits(OpResult started, Value value) {
  for (Operation *wait : llvm::make_early_inc_range(started.getUsers())) {
    wait->getResult(0).replaceAllUsesWith(value);
    wait->erase();
  }
}

void FXImporter::import(const FXCollective &start) {
  Operation *op = start.op;
  MLIRContext *context = module.getContext();
  auto group = symbols.lookupSymbolIn<ProcessGroupOp>(
      module, StringAttr::get(context, start.getString("group_name")));
  if (start.getKind() != CollectiveKind::AllReduce) {
    remark::passed(op->getLoc(), remarkOf("Exchange", "ddp-import-fx"))
        << group.getSymName();
    replaceWaits(op->getResult(0), buildExchange(start, group));
    op->erase();
    return;
  }
  Reduction kind =
      start.getString("reduce_op") == "avg" ? Reduction::Mean : Reduction::Sum;
  auto names = start.arguments.getAs<ArrayAttr>("names");
  Location loc = op->getLoc();
  OpBuilder builder(op);
  SmallVector<AllReduceOp> all;
  for (auto [i, operand] : llvm::enumerate(op->getOperands())) {
    auto reduced = AllReduceOp::create(builder, loc, operand, group, kind);
    all.push_back(reduced);
    if (cast<RankedTensorType>(operand.getType()).getRank() == 0)
      reduced.setHook(AllReduceHookAttr::get(context));
    if (names && !cast<StringAttr>(names[i]).empty())
      reduced->setAttr(DDPDialect::kNameAttrName, names[i]);
    replaceWaits(op->getResult(i), reduced.getResult());
  }
  // Folding a mean looks at all uses, so erase the start first.
  op->erase();
  for (AllReduceOp reduced : all) {
    if (std::optional<int64_t> size = getStatedSize(group))
      foldLinalgMean(reduced, *size, "ddp-import-fx");
    remark::passed(loc, remarkOf("Reduction", "ddp-import-fx"))
        << reduced.getGroup()
        << remark::metric("exact", reduced->hasAttr(DDPDialect::kHookAttrName))
        << remark::metric("mean", reduced.getReduction() == Reduction::Mean);
  }
}

/// Removes unused functions that represent collectives.
void FXImporter::eraseUncalled() {
  SymbolTableCollection symbols;
  SymbolUserMap users(symbols, module);
  for (Operation &op : llvm::make_early_inc_range(*module.getBody()))
    if (isCollectiveFunction(&op) &&
        SymbolTable::getSymbolVisibility(&op) ==
            SymbolTable::Visibility::Private &&
        users.useEmpty(&op))
      op.erase();
}

LogicalResult FXImporter::run() {
  bool ok = succeeded(findCollectives());
  for (const FXCollective &collective : collectives) {
    if (collective.isWait())
      ok &= succeeded(checkWait(collective));
    else if (imported.contains(collective.op))
      ok &= succeeded(checkAwaited(collective));
  }
  if (!ok)
    return failure();
  if (!options.allowRepeated)
    for (const FXCollective &collective : collectives)
      if (imported.contains(collective.op) && collective.isReduction())
        ok &= succeeded(checkRepeated(collective));
  if (!ok)
    return failure();
  for (const FXCollective &collective : collectives)
    // The others are waits, erased with their starts, or are kept.
    if (imported.contains(collective.op))
      import(collective);
  eraseUncalled();
  return success();
}

namespace {
struct ImportFXPass : public ddp::impl::DDPImportFXPassBase<ImportFXPass> {
  using DDPImportFXPassBase::DDPImportFXPassBase;

  void runOnOperation() override {
    DDPImportFXPassOptions options;
    options.allowRepeated = allowRepeated;
    options.keepOthers = keepOthers;
    if (failed(FXImporter(getOperation(), options).run()))
      return signalPassFailure();
    if (!keepAccumulators)
      requestWideAccumulators(getOperation());
  }
};
} // namespace
