// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-import-shard: converts the all-reduces, reduce-scatters and all-gathers
// of upstream's partitioner to ddp, and parts of a grid of processes to process
// groups.

#include "../Utils/Means.h"
#include "../Utils/RankLists.h"
#include "GridCollectives.h"
#include "ddphook/Dialect/DDP/IR/Remarks.h"

#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/RegionUtils.h"

#define GEN_PASS_DEF_DDPIMPORTSHARDPASS
#include "ddphook/Conversion/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
/// Imports one module.
class ShardImporter {
public:
  ShardImporter(ModuleOp module, const DDPImportShardPassOptions &options)
      : module(module), options(options) {}
  LogicalResult run();

private:
  void findReductions();
  bool isGradient(Value input, ArrayRef<int16_t> axes) const;
  LogicalResult checkOptions() const;
  LogicalResult checkRepeated(Operation *op, Operation *grid,
                              ArrayRef<int16_t> axes) const;
  LogicalResult refuse(Operation *op, const Twine &reason) const;
  LogicalResult refuseOthers();
  ProcessGroupOp getGroup(shard::GridOp grid, ArrayRef<int16_t> axes);
  void import(const GridReduction &reduction);
  void import(const GridExchange &exchange);

  ModuleOp module;
  const DDPImportShardPassOptions &options;
  SymbolTableCollection symbols;
  std::vector<GridReduction> reductions;
  /// Indices in `reductions` of their operations.
  DenseMap<Operation *, size_t> numbers;
  /// Lone exchanges of parts of tensors.
  llvm::MapVector<Operation *, GridExchange> exchanges;
  /// By grid and axes.
  DenseMap<std::pair<Operation *, Attribute>, ProcessGroupOp> groups;
};
} // namespace

void ShardImporter::findReductions() {
  module.walk([&](Operation *op) {
    std::optional<GridReduction> reduction = matchReduction(op, symbols);
    if (!reduction)
      return;
    numbers[op] = reductions.size();
    if (reduction->gather)
      numbers[reduction->gather] = reductions.size();
    reductions.push_back(*std::move(reduction));
  });
  module.walk([&](Operation *op) {
    if (!numbers.contains(op))
      if (std::optional<GridExchange> exchange = matchExchange(op, symbols))
        exchanges.insert({op, *exchange});
  });
}

/// Returns true if hooks may compress the reduction.
bool ShardImporter::isGradient(Value input, ArrayRef<int16_t> axes) const {
  if (cast<ShapedType>(input.getType()).getRank() == 0)
    return false;
  return options.gradientAxes.empty() || llvm::all_of(axes, [&](int16_t axis) {
           return llvm::is_contained(options.gradientAxes, axis);
         });
}

LogicalResult ShardImporter::checkOptions() const {
  SmallVector<size_t> ranks;
  for (const GridReduction &reduction : reductions)
    ranks.push_back(reduction.getGridShape().size());
  for (const auto &[op, exchange] : exchanges)
    ranks.push_back(shard::GridOp(exchange.grid).getShape().size());
  for (int64_t axis : options.gradientAxes)
    if (!ranks.empty() && llvm::none_of(ranks, [&](size_t rank) {
          return axis >= 0 && axis < int64_t(rank);
        }))
      return ModuleOp(module).emitError()
             << "expected gradient-axes to be axes of a grid, but got " << axis;
  return success();
}

/// Returns the only operand of `op` other than constants. Returns null if there
/// are several or the process's index matters.
static Value getOnlySource(Operation *op) {
  // The regions of other operations may compute anything.
  if ((op->getNumRegions() != 0 && !isa<linalg::LinalgOp>(op)) ||
      isa_and_nonnull<shard::ShardDialect>(op->getDialect()) ||
      !isMemoryEffectFree(op))
    return {};
  SetVector<Value> used(op->operand_begin(), op->operand_end());
  getUsedValuesDefinedAbove(op->getRegions(), used);
  used.remove_if([](Value value) {
    return matchPattern(value, m_Constant()) ||
           value.getDefiningOp<tensor::EmptyOp>();
  });
  return used.size() == 1 ? used.front() : Value();
}

/// Rejects a reduction over an axis along which all processes have equal values
/// because they were already reduced over it.
LogicalResult ShardImporter::checkRepeated(Operation *later, Operation *grid,
                                           ArrayRef<int16_t> axes) const {
  Value value = later->getOperand(0);
  // In unreachable code, a value may depend on itself.
  DenseSet<Operation *> seen;
  while (Operation *op = value ? value.getDefiningOp() : nullptr) {
    if (!seen.insert(op).second)
      break;
    auto it = numbers.find(op);
    if (it == numbers.end()) {
      value = getOnlySource(op);
      continue;
    }
    const GridReduction &earlier = reductions[it->second];
    value = earlier.getInput();
    const auto *axis =
        llvm::find_if(axes, [&](int16_t axis) { return earlier.isOver(axis); });
    if (earlier.grid != grid || axis == axes.end())
      continue;
    InFlightDiagnostic diagnostic =
        later->emitOpError()
        << "expected a value that is not reduced over axis " << *axis << " of @"
        << cast<shard::GridOp>(grid).getSymName()
        << " yet; allow-repeated=true reduces it again";
    diagnostic.attachNote(earlier.op->getLoc())
        << "this '" << earlier.op->getName() << "' has reduced it";
    return diagnostic;
  }
  return success();
}

ProcessGroupOp ShardImporter::getGroup(shard::GridOp grid,
                                       ArrayRef<int16_t> axes) {
  OpBuilder builder(grid);
  ProcessGroupOp &group = groups[{grid, builder.getDenseI16ArrayAttr(axes)}];
  if (group)
    return group;
  IntegerAttr size;
  ArrayAttr ranks;
  if (!ShapedType::isDynamicShape(grid.getShape())) {
    RankLists lists = listRanks(grid.getShape(), axes);
    size = builder.getI64IntegerAttr(lists[0].size());
    // A single list is the whole job.
    if (lists.size() > 1)
      ranks = builder.getArrayAttr(
          llvm::map_to_vector(lists, [&](ArrayRef<int64_t> list) -> Attribute {
            return builder.getDenseI64ArrayAttr(list);
          }));
  }
  std::string name = grid.getSymName().str();
  for (int16_t axis : axes)
    name += "_" + std::to_string(axis);
  group = ProcessGroupOp::create(builder, grid.getLoc(), name, size, ranks,
                                 /*placement=*/{}, /*parent=*/{},
                                 /*topology=*/{});
  // Renames the group if the program has the symbol already.
  symbols.getSymbolTable(grid->getParentOp()).insert(group);
  return group;
}

void ShardImporter::import(const GridReduction &reduction) {
  Location loc = reduction.op->getLoc();
  ProcessGroupOp group;
  AllReduceOp reduced;
  if (reduction.axes.empty()) {
    // By the dialect's definition each process is then alone, but a
    // hand-written program may have meant all axes.
    reduction.op->emitWarning()
        << "'" << reduction.op->getName()
        << "' without grid axes reduces nothing; it is removed";
  } else {
    OpBuilder builder(reduction.op);
    group = getGroup(reduction.grid, reduction.axes);
    reduced = AllReduceOp::create(
        builder, loc, reduction.getInput(), group,
        reduction.kind == shard::ReductionKind::Average ? Reduction::Mean
                                                        : Reduction::Sum);
    reduced->setDiscardableAttrs(reduction.op->getDiscardableAttrDictionary());
  }
  Value result = reduction.getResult();
  result.replaceAllUsesWith(reduced ? Value(reduced.getResult())
                                    : reduction.getInput());
  bool isExact = !isGradient(reduction.getInput(), reduction.axes);
  if (reduction.gather)
    reduction.gather->erase();
  reduction.op->erase();
  if (!reduced)
    return;
  if (isExact)
    reduced.setHook(AllReduceHookAttr::get(module.getContext()));
  // Folding a mean looks at all uses, so the reduction is erased first.
  if (std::optional<int64_t> size = group.getSize())
    foldLinalgMean(reduced, *size, "ddp-import-shard");
  remark::passed(loc, remarkOf("Reduction", "ddp-import-shard"))
      << reduced.getGroup() << remark::metric("exact", isExact)
      << remark::metric("mean", reduced.getReduction() == Reduction::Mean);
}

void ShardImporter::import(const GridExchange &exchange) {
  Operation *op = exchange.op;
  ProcessGroupOp group = getGroup(exchange.grid, exchange.axes);
  bool isExact =
      exchange.reductionKind && !isGradient(op->getOperand(0), exchange.axes);
  auto [made, result] = exchange.build(group);
  if (isa<ReduceScatterOp, AllGatherOp>(made))
    made->setDiscardableAttrs(op->getDiscardableAttrDictionary());
  if (isExact)
    made->setAttr(DDPDialect::kHookAttrName,
                  AllReduceHookAttr::get(module.getContext()));
  remark::passed(op->getLoc(), remarkOf("Exchange", "ddp-import-shard"))
      << group.getSymName() << remark::metric("exact", isExact);
  op->getResult(0).replaceAllUsesWith(result);
  op->erase();
}

static bool isInProgram(Operation *op) {
  return isa_and_nonnull<shard::ShardDialect>(op->getDialect()) &&
         !isa<shard::GridOp>(op);
}

static void eraseDead(ModuleOp module) {
  SmallVector<Operation *> ops;
  module.walk([&](Operation *op) {
    if (isInProgram(op))
      ops.push_back(op);
  });
  // Erase users before their operands.
  for (Operation *op : llvm::reverse(ops))
    if (isOpTriviallyDead(op))
      op->erase();
}

static void eraseUnusedGrids(ModuleOp module) {
  SymbolTableCollection symbols;
  SymbolUserMap users(symbols, module);
  module.walk([&](shard::GridOp grid) {
    if (users.useEmpty(grid))
      grid.erase();
  });
}

static StringRef getRemedy(Operation *op) {
  if (isa<shard::ShardOp, shard::ShardingOp, shard::GetShardingOp>(op))
    return "expected a partitioned program; run 'shard-partition' first";
  if (isa<shard::GridShapeOp>(op))
    return "expected a grid of static shape";
  if (isa<shard::ProcessLinearIndexOp, shard::ProcessMultiIndexOp,
          shard::NeighborsLinearIndicesOp, shard::ShardShapeOp>(op))
    return "expected a program that does not need the process's index, which "
           "compiled code does not know; split sums have to start from zeros";
  return "expected all-reduces, reduce-scatters, all-gathers, all-to-alls and "
         "broadcasts only";
}

/// Reports `op` or, with keep-others, leaves it to another pass.
LogicalResult ShardImporter::refuse(Operation *op, const Twine &reason) const {
  if (!options.keepOthers)
    return op->emitOpError() << reason;
  remark::missed(op->getLoc(), remarkOf("Kept", "ddp-import-shard"))
      << (op->getName().getStringRef() + ": " + reason).str();
  return success();
}

LogicalResult ShardImporter::refuseOthers() {
  bool ok = true;
  module.walk([&](Operation *op) {
    if (isInProgram(op) && !numbers.contains(op) && !exchanges.contains(op))
      ok &= succeeded(refuse(op, getRemedy(op)));
  });
  return success(ok);
}

LogicalResult ShardImporter::run() {
  foldProcessIndices(module);
  eraseDead(module);
  findReductions();
  bool ok = succeeded(checkOptions());
  ok &= succeeded(refuseOthers());
  SmallVector<const GridReduction *> imported;
  for (const GridReduction &reduction : reductions) {
    if (std::string obstacle = findObstacle(reduction); !obstacle.empty())
      ok &= succeeded(refuse(reduction.op, obstacle));
    else if (!options.allowRepeated &&
             failed(
                 checkRepeated(reduction.op, reduction.grid, reduction.axes)))
      ok = false;
    else
      imported.push_back(&reduction);
  }
  SmallVector<const GridExchange *> exchanged;
  for (const auto &[op, exchange] : exchanges) {
    if (std::string obstacle = findObstacle(exchange); !obstacle.empty())
      ok &= succeeded(refuse(op, obstacle));
    else if (!options.allowRepeated && exchange.reductionKind &&
             failed(checkRepeated(op, exchange.grid, exchange.axes)))
      ok = false;
    else
      exchanged.push_back(&exchange);
  }
  if (!ok)
    return failure();
  for (const GridReduction *reduction : imported)
    import(*reduction);
  for (const GridExchange *exchange : exchanged)
    import(*exchange);
  eraseUnusedGrids(module);
  return success();
}

namespace {
struct ImportShardPass
    : public ddp::impl::DDPImportShardPassBase<ImportShardPass> {
  using DDPImportShardPassBase::DDPImportShardPassBase;

  void runOnOperation() override {
    DDPImportShardPassOptions options;
    options.gradientAxes = llvm::to_vector(gradientAxes);
    options.allowRepeated = allowRepeated;
    options.keepOthers = keepOthers;
    if (failed(ShardImporter(getOperation(), options).run()))
      signalPassFailure();
  }
};
} // namespace
