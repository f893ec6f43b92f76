// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "TensorExchange.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/Sequence.h"

using namespace mlir;
using namespace mlir::ddp;

static RankedTensorType getTensorType(Value value) {
  return cast<RankedTensorType>(value.getType());
}

Value Rearranger::reshape(ImplicitLocOpBuilder &builder, Value value,
                          RankedTensorType type) const {
  RankedTensorType from = getTensorType(value);
  bool isSplit = type.getRank() > from.getRank();
  // One dimension of the type with fewer is several of the other one.
  auto [few, many] = isSplit ? std::pair(from, type) : std::pair(type, from);
  int64_t more = many.getRank() - few.getRank(), place = 0;
  while (place + 1 < few.getRank() &&
         few.getDimSize(place) == many.getDimSize(place))
    ++place;
  SmallVector<ReassociationIndices> groups(few.getRank());
  for (int64_t i = 0; i < many.getRank(); ++i)
    groups[i <= place ? i : std::max(i - more, place)].push_back(i);
  if (isSplit)
    return tensor::ExpandShapeOp::create(builder, type, value, groups);
  return tensor::CollapseShapeOp::create(builder, type, value, groups);
}

Value Rearranger::transpose(ImplicitLocOpBuilder &builder, Value value,
                            RankedTensorType type,
                            ArrayRef<int64_t> order) const {
  Value empty =
      tensor::EmptyOp::create(builder, type.getShape(), type.getElementType());
  return linalg::TransposeOp::create(builder, value, empty, order)
      ->getResult(0);
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

bool TensorExchange::hasFittingTypes() const {
  RankedTensorType from = getTensorType(op->getOperand(0)),
                   to = getTensorType(op->getResult(0));
  switch (kind) {
  case CollectiveKind::ReduceScatter:
    return isInParts(from, to, dimension, size);
  case CollectiveKind::AllGather:
    return isInParts(to, from, dimension, size);
  case CollectiveKind::AllToAll: {
    if (dimension < 0 || dimension >= from.getRank() ||
        from.getDimSize(dimension) % size != 0)
      return false;
    SmallVector<int64_t> shape(from.getShape());
    shape[dimension] /= size;
    return isInParts(to, from.clone(shape), concatDimension, size);
  }
  default:
    return from == to;
  }
}

std::pair<Operation *, Value>
TensorExchange::build(ProcessGroupOp group,
                      const Rearranger &rearranger) const {
  ImplicitLocOpBuilder builder(op->getLoc(), op);
  Value value = op->getOperand(0);
  RankedTensorType from = getTensorType(value),
                   to = getTensorType(op->getResult(0));
  auto name = FlatSymbolRefAttr::get(group.getSymNameAttr());
  auto reshape = [&](Value tensor, ArrayRef<int64_t> shape) {
    RankedTensorType type = getTensorType(tensor).clone(shape);
    return type == tensor.getType() ? tensor
                                    : rearranger.reshape(builder, tensor, type);
  };
  auto moveSize = [](ArrayRef<int64_t> sizes, int64_t first, int64_t last) {
    SmallVector<int64_t> moved(sizes);
    moved.erase(moved.begin() + first);
    moved.insert(moved.begin() + last, sizes[first]);
    return moved;
  };
  auto moveDimension = [&](Value tensor, int64_t first, int64_t last) {
    RankedTensorType type = getTensorType(tensor);
    auto order = llvm::to_vector(llvm::seq<int64_t>(type.getRank()));
    return first == last
               ? tensor
               : rearranger.transpose(
                     builder, tensor,
                     type.clone(moveSize(type.getShape(), first, last)),
                     moveSize(order, first, last));
  };
  // Parts are contiguous if the dimensions before theirs have one index each.
  auto isOne = [](int64_t extent) { return extent == 1; };
  int64_t place = llvm::all_of(from.getShape().take_front(dimension), isOne)
                      ? 0
                      : dimension;
  switch (kind) {
  case CollectiveKind::ReduceScatter: {
    value = moveDimension(value, place, 0);
    Operation *scatter = ReduceScatterOp::create(
        builder, to.clone({to.getNumElements()}),
        ReductionAttr::get(builder.getContext(), reduction), value, name,
        /*wire=*/{}, /*step=*/{});
    value = reshape(scatter->getResult(0), moveSize(to.getShape(), place, 0));
    return {scatter, moveDimension(value, 0, place)};
  }
  case CollectiveKind::AllGather: {
    value = reshape(moveDimension(value, place, 0), from.getNumElements());
    Operation *gather = AllGatherOp::create(
        builder, to.clone(moveSize(to.getShape(), place, 0)), value, name,
        /*wire=*/{}, /*bucket_name=*/{});
    return {gather, moveDimension(gather->getResult(0), 0, place)};
  }
  case CollectiveKind::AllToAll: {
    if (dimension != 0 || concatDimension != 0) {
      // Becomes the number of the part, and the index within it.
      SmallVector<int64_t> shape(from.getShape());
      shape[dimension] /= size;
      shape.insert(shape.begin() + dimension, size);
      value = moveDimension(reshape(value, shape), dimension, 0);
    }
    Operation *exchange =
        AllToAllOp::create(builder, value.getType(), value, name);
    value = exchange->getResult(0);
    if (dimension != 0 || concatDimension != 0)
      value = moveDimension(value, 0, concatDimension);
    return {exchange, reshape(value, to.getShape())};
  }
  default:
    Operation *broadcast = BroadcastOp::create(
        builder, to, value, builder.getI64IntegerAttr(root), name);
    return {broadcast, broadcast->getResult(0)};
  }
}
