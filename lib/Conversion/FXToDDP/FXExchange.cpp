// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Imports PyTorch's collectives other than all-reduces. They split tensors
// along the first dimension, so that the parts are contiguous, as ddp's are.

#include "FXCollective.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::ddp;

/// Returns true if `whole` is `number` parts along the first dimension.
static bool isInParts(RankedTensorType whole, RankedTensorType part,
                      int64_t number) {
  if (part.getRank() == 0)
    return false;
  SmallVector<int64_t> shape(part.getShape());
  shape[0] *= number;
  return whole == part.clone(shape);
}

/// Returns true if the sizes in this attribute are all equal, or absent.
static bool isEven(const FXCollective &start, StringRef name) {
  auto sizes = start.arguments.getAs<ArrayAttr>(name);
  return !sizes || llvm::all_equal(sizes);
}

std::string mlir::ddp::judgeExchange(const FXCollective &start,
                                     std::optional<int64_t> size) {
  Operation *op = start.op;
  if (op->getNumOperands() != 1 || op->getNumResults() != 1)
    return "expected one operand and one result";
  auto from = cast<RankedTensorType>(op->getOperand(0).getType());
  auto to = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  if (!to || !to.hasStaticShape())
    return "expected a result of static shape";
  if (!size)
    return "expected a process group that declares its size";
  bool ok = true;
  switch (*start.getKind()) {
  case CollectiveKind::ReduceScatter:
    ok = isInParts(from, to, *size);
    break;
  case CollectiveKind::AllGather:
    ok = isInParts(to, from, *size);
    break;
  case CollectiveKind::AllToAll:
    ok = from == to && from.getRank() != 0 && from.getDimSize(0) % *size == 0 &&
         isEven(start, "output_split_sizes") &&
         isEven(start, "input_split_sizes");
    break;
  default:
    std::optional<int64_t> root = start.getInteger("src");
    if (!root || *root < 0 || *root >= *size || from != to)
      return "expected src to be a rank of the group";
  }
  return ok ? "" : "expected equal parts of a tensor, one for each rank";
}

Value mlir::ddp::buildExchange(const FXCollective &start,
                               ProcessGroupOp group) {
  Operation *op = start.op;
  OpBuilder builder(op);
  Location loc = op->getLoc();
  Value input = op->getOperand(0);
  auto from = cast<RankedTensorType>(input.getType());
  auto to = cast<RankedTensorType>(op->getResult(0).getType());
  auto name = FlatSymbolRefAttr::get(group.getSymNameAttr());
  auto all = [](RankedTensorType type) -> SmallVector<ReassociationIndices> {
    return {llvm::to_vector<2>(llvm::seq<int64_t>(type.getRank()))};
  };
  switch (*start.getKind()) {
  case CollectiveKind::ReduceScatter: {
    auto scatter = ReduceScatterOp::create(
        builder, loc, to.clone({to.getNumElements()}),
        ReductionAttr::get(builder.getContext(),
                           start.getString("reduce_op") == "avg"
                               ? Reduction::Mean
                               : Reduction::Sum),
        input, name, /*wire=*/{}, /*step=*/{});
    auto names = start.arguments.getAs<ArrayAttr>("names");
    if (names && !cast<StringAttr>(names[0]).empty())
      scatter->setAttr(DDPDialect::kNameAttrName, names[0]);
    if (to.getRank() == 1)
      return scatter.getResult();
    return tensor::ExpandShapeOp::create(builder, loc, to, scatter.getResult(),
                                         all(to));
  }
  case CollectiveKind::AllGather:
    if (from.getRank() != 1)
      input = tensor::CollapseShapeOp::create(builder, loc, input, all(from));
    return AllGatherOp::create(builder, loc, to, input, name, /*wire=*/{},
                               /*bucket_name=*/{});
  case CollectiveKind::AllToAll:
    return AllToAllOp::create(builder, loc, to, input, name);
  default:
    return BroadcastOp::create(
        builder, loc, to, input,
        builder.getI64IntegerAttr(*start.getInteger("src")), name);
  }
}
