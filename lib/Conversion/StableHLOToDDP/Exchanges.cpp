// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Exchanges.h"
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

/// Returns true if `whole` consists of `number` parts along the dimension.
static bool isInParts(RankedTensorType whole, RankedTensorType part,
                      int64_t dimension, int64_t number) {
  if (dimension < 0 || dimension >= whole.getRank() ||
      whole.getRank() != part.getRank())
    return false;
  SmallVector<int64_t> shape(part.getShape());
  shape[dimension] *= number;
  return whole == part.clone(shape);
}

/// Returns true if these are the types of an exchange of equal parts among
/// `size` ranks.
static bool hasFittingTypes(const Exchange &exchange, RankedTensorType from,
                            RankedTensorType to, int64_t size) {
  Operation *op = exchange.op;
  switch (exchange.kind) {
  case CollectiveKind::ReduceScatter:
    return isInParts(from, to, getNumber(op, "scatter_dimension"), size);
  case CollectiveKind::AllGather:
    return isInParts(to, from, getNumber(op, "all_gather_dim"), size);
  case CollectiveKind::AllToAll: {
    int64_t split = getNumber(op, "split_dimension"),
            concat = getNumber(op, "concat_dimension");
    if (getNumber(op, "split_count") != size || split < 0 ||
        split >= from.getRank() || from.getDimSize(split) % size != 0)
      return false;
    SmallVector<int64_t> shape(from.getShape());
    shape[split] /= size;
    return isInParts(to, from.clone(shape), concat, size);
  }
  default:
    return from == to;
  }
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
  if (!hasFittingTypes(exchange, from, to,
                       ReplicaGroups::getSize(exchange.groups)))
    return "expected equal parts of a tensor, one for each rank of a group";
  return "";
}

namespace {
/// Builds the reshapes and transposes around an exchange.
class ExchangeBuilder {
public:
  explicit ExchangeBuilder(Operation *op) : builder(op), loc(op->getLoc()) {}

  Value reshape(Value value, ArrayRef<int64_t> shape) {
    auto type = cast<RankedTensorType>(value.getType()).clone(shape);
    return type == value.getType() ? value : create("reshape", type, value);
  }
  Value transpose(Value value, ArrayRef<int64_t> order) {
    auto type = cast<RankedTensorType>(value.getType());
    if (llvm::is_sorted(order))
      return value;
    auto shape = llvm::map_to_vector(
        order, [&](int64_t from) { return type.getDimSize(from); });
    return create("transpose", type.clone(shape), value,
                  builder.getNamedAttr("permutation",
                                       builder.getDenseI64ArrayAttr(order)));
  }
  Value move(Value value, int64_t from, int64_t to) {
    auto order = llvm::to_vector(
        llvm::seq<int64_t>(cast<RankedTensorType>(value.getType()).getRank()));
    order.erase(order.begin() + from);
    order.insert(order.begin() + to, from);
    return transpose(value, order);
  }
  /// Splits a dimension in two, the first of which has `count` indices.
  Value split(Value value, int64_t dimension, int64_t count) {
    SmallVector<int64_t> shape(
        cast<RankedTensorType>(value.getType()).getShape());
    shape[dimension] /= count;
    shape.insert(shape.begin() + dimension, count);
    return reshape(value, shape);
  }

  OpBuilder builder;
  Location loc;

private:
  Value create(StringRef name, Type type, Value operand,
               ArrayRef<NamedAttribute> attributes = {}) {
    OperationState state(loc, ("stablehlo." + name).str());
    state.addTypes(type);
    state.addOperands(operand);
    state.addAttributes(attributes);
    return builder.create(state)->getResult(0);
  }
};
} // namespace

void mlir::ddp::importExchange(const Exchange &exchange, ProcessGroupOp group,
                               Attribute hook) {
  Operation *op = exchange.op;
  ExchangeBuilder build(op);
  OpBuilder &builder = build.builder;
  Location loc = build.loc;
  Value value = op->getOperand(0);
  auto from = cast<RankedTensorType>(value.getType());
  auto to = cast<RankedTensorType>(op->getResult(0).getType());
  auto name = FlatSymbolRefAttr::get(group.getSymNameAttr());
  int64_t size = ReplicaGroups::getSize(exchange.groups);
  Operation *made;
  switch (exchange.kind) {
  case CollectiveKind::ReduceScatter: {
    int64_t dimension = getNumber(op, "scatter_dimension");
    value = build.move(value, dimension, 0);
    auto shape =
        llvm::to_vector(cast<RankedTensorType>(value.getType()).getShape());
    shape[0] /= size;
    made = ReduceScatterOp::create(
        builder, loc, from.clone({to.getNumElements()}),
        ReductionAttr::get(builder.getContext(), Reduction::Sum), value, name,
        /*wire=*/{}, /*step=*/{});
    if (hook)
      made->setAttr(DDPDialect::kHookAttrName, hook);
    value = build.reshape(made->getResult(0), shape);
    value = build.move(value, 0, dimension);
    break;
  }
  case CollectiveKind::AllGather: {
    int64_t dimension = getNumber(op, "all_gather_dim");
    value = build.move(value, dimension, 0);
    auto shape =
        llvm::to_vector(cast<RankedTensorType>(value.getType()).getShape());
    shape[0] *= size;
    value = build.reshape(value, from.getNumElements());
    made = AllGatherOp::create(builder, loc, from.clone(shape), value, name,
                               /*wire=*/{}, /*bucket_name=*/{});
    value = build.move(made->getResult(0), 0, dimension);
    break;
  }
  case CollectiveKind::AllToAll: {
    int64_t split = getNumber(op, "split_dimension"),
            concat = getNumber(op, "concat_dimension");
    value = build.move(build.split(value, split, size), split, 0);
    made = AllToAllOp::create(builder, loc, value.getType(), value, name);
    value = build.move(made->getResult(0), 0, concat);
    value = build.reshape(value, to.getShape());
    break;
  }
  default:
    made = BroadcastOp::create(builder, loc, from, value,
                               builder.getI64IntegerAttr(exchange.root), name);
    value = made->getResult(0);
  }
  op->getResult(0).replaceAllUsesWith(value);
  op->erase();
}
