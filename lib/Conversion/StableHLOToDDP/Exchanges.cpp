// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "ImportSteps.h"
#include "StableHLO.h"
#include "ddphook/Dialect/DDP/IR/ElementTypes.h"

#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using namespace mlir::ddp;

std::optional<CollectiveKind> mlir::ddp::getExchangeKind(Operation *op) {
  return llvm::StringSwitch<std::optional<CollectiveKind>>(
             op->getName().getStringRef())
      .Case("stablehlo.reduce_scatter", CollectiveKind::ReduceScatter)
      .Case("stablehlo.all_gather", CollectiveKind::AllGather)
      .Case("stablehlo.all_to_all", CollectiveKind::AllToAll)
      .Case("stablehlo.collective_broadcast", CollectiveKind::Broadcast)
      .Default(std::nullopt);
}

/// Returns an integer attribute of `op`; -1 if it is missing.
static int64_t getNumber(Operation *op, StringRef name) {
  auto attribute = op->getAttrOfType<IntegerAttr>(name);
  return attribute ? attribute.getValue().getSExtValue() : -1;
}

std::string mlir::ddp::readExchange(Exchange &exchange,
                                    const ReplicaGroups &groups) {
  Operation *op = exchange.op;
  bool isScatter = exchange.kind == CollectiveKind::ReduceScatter;
  if (op->getNumOperands() != 1 || op->getNumResults() != 1 ||
      op->getNumRegions() != (isScatter ? 1 : 0) || op->hasSuccessors())
    return "expected one operand and one result";
  auto from = dyn_cast<RankedTensorType>(op->getOperand(0).getType());
  auto to = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  if (!from || !to || !from.hasStaticShape() || !to.hasStaticShape() ||
      !isDtype(from.getElementType())) {
    std::string text;
    llvm::raw_string_ostream(text)
        << "expected statically shaped tensors of " << getDtypeNames()
        << ", but got '" << op->getOperand(0).getType() << "'";
    return text;
  }
  Type number = RankedTensorType::get({}, from.getElementType());
  if (isScatter &&
      matchCombiner(op->getRegion(0), number) != StringRef("stablehlo.add"))
    return "expected a sum";
  RankLists lists;
  if (std::string why = groups.read(op, exchange.groups, &lists); !why.empty())
    return why;
  for (ArrayRef<int64_t> list : lists) {
    auto place =
        llvm::count_if(list, [&](int64_t rank) { return rank < list.front(); });
    if (exchange.kind == CollectiveKind::Broadcast) {
      if (list != ArrayRef(lists.front()) && place != exchange.root)
        return "expected the rank at the same position in each group to send";
      exchange.root = place;
    } else if (!llvm::is_sorted(list)) {
      return "expected the ranks of a group in ascending order, which is the "
             "order of their parts";
    }
  }
  exchange.size = ReplicaGroups::getSize(exchange.groups);
  switch (exchange.kind) {
  case CollectiveKind::ReduceScatter:
    exchange.dimension = getNumber(op, "scatter_dimension");
    break;
  case CollectiveKind::AllGather:
    exchange.dimension = getNumber(op, "all_gather_dim");
    break;
  case CollectiveKind::AllToAll:
    exchange.dimension = getNumber(op, "split_dimension");
    exchange.concatDimension = getNumber(op, "concat_dimension");
    break;
  default:
    break;
  }
  bool hasFittingCount = exchange.kind != CollectiveKind::AllToAll ||
                         getNumber(op, "split_count") == exchange.size;
  if (!hasFittingCount || !exchange.hasFittingTypes())
    return "expected equal parts of a tensor, one for each rank of a group";
  return "";
}

namespace {
struct StableHLORearranger : Rearranger {
  Value reshape(ImplicitLocOpBuilder &builder, Value value,
                RankedTensorType type) const override {
    OperationState state(builder.getLoc(), "stablehlo.reshape", value, type);
    return builder.create(state)->getResult(0);
  }

  Value transpose(ImplicitLocOpBuilder &builder, Value value,
                  RankedTensorType type,
                  ArrayRef<int64_t> order) const override {
    OperationState state(builder.getLoc(), "stablehlo.transpose", value, type);
    state.addAttribute("permutation", builder.getDenseI64ArrayAttr(order));
    return builder.create(state)->getResult(0);
  }
};
} // namespace

void mlir::ddp::importExchange(const Exchange &exchange, ProcessGroupOp group,
                               Attribute hook) {
  auto [made, value] = exchange.build(group, StableHLORearranger());
  if (hook)
    made->setAttr(DDPDialect::kHookAttrName, hook);
  exchange.op->getResult(0).replaceAllUsesWith(value);
  exchange.op->erase();
}
