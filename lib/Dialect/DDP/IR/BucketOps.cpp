// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Verifiers, folders and type inference of the operations that build buckets
// from tensors and other buckets, and that take them apart.

#include "Verifiers.h"

#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace mlir::ddp;

/// Checks that `tensors` are the members of `bucket`, or fill it once it is
/// flat.
static LogicalResult verifyMembers(Operation *op, TypeRange tensors,
                                   Type bucket) {
  for (auto [index, type] : llvm::enumerate(tensors))
    if (getElementTypeOf(type) != getElementTypeOf(bucket))
      return op->emitOpError()
             << "expected tensor " << index << " to have element type "
             << getElementTypeOf(bucket) << ", but got " << type;
  if (auto bucketType = dyn_cast<BucketType>(bucket)) {
    if (failed(verifyCount(op, tensors.size(), bucketType.getNumMembers(),
                           "tensors for this bucket")))
      return failure();
    for (auto [index, type] : llvm::enumerate(tensors))
      if (cast<RankedTensorType>(type).getShape() != bucketType.getShape(index))
        return op->emitOpError()
               << "expected tensor " << index << " to be "
               << bucketType.getMemberType(index) << ", but got " << type;
    return success();
  }
  int64_t numElements = 0;
  for (Type type : tensors)
    numElements = addElements(numElements, getNumElementsOf(type));
  if (numElements != getNumElementsOf(bucket))
    return op->emitOpError()
           << "expected tensors of " << getNumElementsOf(bucket)
           << " elements in total, but got " << numElements;
  return success();
}

LogicalResult PackOp::verify() {
  return verifyMembers(*this, getTensors().getTypes(), getBucket().getType());
}

LogicalResult UnpackOp::verify() {
  return verifyMembers(*this, getTensors().getTypes(), getBucket().getType());
}

OpFoldResult PackOp::fold(FoldAdaptor) {
  // pack(unpack(b)) is b.
  if (getTensors().empty())
    return {};
  auto unpack = getTensors().front().getDefiningOp<UnpackOp>();
  if (unpack && unpack.getBucket().getType() == getBucket().getType() &&
      llvm::equal(unpack.getTensors(), getTensors()))
    return unpack.getBucket();
  return {};
}

LogicalResult UnpackOp::fold(FoldAdaptor,
                             SmallVectorImpl<OpFoldResult> &results) {
  // unpack(pack(t…)) is t….
  auto pack = getBucket().getDefiningOp<PackOp>();
  if (!pack || pack.getTensors().getTypes() != getTensors().getTypes())
    return failure();
  llvm::append_range(results, pack.getTensors());
  return success();
}

/// Checks that `parts`, which are operands or results, make up `whole`. If
/// `order` is given, it lists the positions of their members in `whole`.
static LogicalResult verifyParts(Operation *op, TypeRange parts, Type whole,
                                 StringRef partKind, StringRef wholeKind,
                                 std::optional<ArrayRef<int64_t>> order = {}) {
  auto bucket = dyn_cast<BucketType>(whole);
  SmallVector<DenseI64ArrayAttr> shapes;
  int64_t numElements = 0;
  for (auto [index, part] : llvm::enumerate(parts)) {
    if (getElementTypeOf(part) != getElementTypeOf(whole))
      return op->emitOpError()
             << "expected " << partKind << " " << index
             << " to have element type " << getElementTypeOf(whole)
             << ", but got " << part;
    if (isa<BucketType>(part) != isa<BucketType>(whole))
      return op->emitOpError()
             << "expected " << partKind << " " << index << " to be of the "
             << wholeKind << "'s kind, but got " << part;
    if (bucket)
      llvm::append_range(shapes, cast<BucketType>(part).getShapes());
    numElements = addElements(numElements, getNumElementsOf(part));
  }
  if (order) {
    SmallVector<DenseI64ArrayAttr> ordered(shapes.size());
    if (!bucket)
      return op->emitOpError()
             << "expected 'order' only on buckets, but got " << whole;
    if (order->size() != shapes.size())
      return op->emitOpError() << "expected an order of " << shapes.size()
                               << " members, but got " << order->size();
    for (auto [place, shape] : llvm::zip(*order, shapes)) {
      if (place < 0 || place >= static_cast<int64_t>(ordered.size()) ||
          ordered[place])
        return op->emitOpError() << "expected each position from 0 to "
                                 << static_cast<int64_t>(ordered.size()) - 1
                                 << " once, but got " << place;
      ordered[place] = shape;
    }
    shapes = ordered;
  }
  if (bucket && bucket.getShapes() != ArrayRef(shapes))
    return op->emitOpError()
           << "expected the " << partKind << "s' members to match the "
           << wholeKind << "'s, but got "
           << BucketType::get(op->getContext(), bucket.getElementType(),
                              shapes);
  if (numElements != getNumElementsOf(whole))
    return op->emitOpError()
           << "expected " << partKind << "s of " << getNumElementsOf(whole)
           << " elements in total, but got " << numElements;
  return success();
}

LogicalResult SplitOp::verify() {
  return verifyParts(*this, getParts().getTypes(), getBucket().getType(),
                     "result", "operand"); // C1
}

LogicalResult ConcatOp::verify() {
  if (getDestination() && (isa<BucketType>(getType()) ||
                           getDestination().getType() != getType())) // C3
    return emitOpError() << "expected 'into' on tensors only, of the result's "
                         << "type, but got " << getDestination().getType();
  return verifyParts(*this, getParts().getTypes(), getType(), "operand",
                     "result", getOrder()); // C1, C2
}

OpFoldResult ConcatOp::fold(FoldAdaptor) {
  if (getOrder() || getDestination())
    return {};
  if (getParts().size() == 1 && getParts().front().getType() == getType())
    return getParts().front();
  // A concat of consecutive extracts of one bucket is that bucket.
  Value whole;
  int64_t next = 0;
  for (Value part : getParts()) {
    auto extract = part.getDefiningOp<ExtractOp>();
    if (!extract || (whole && extract.getBucket() != whole))
      return {};
    whole = extract.getBucket();
    for (int64_t member : extract.getMembers())
      if (member != next++)
        return {};
  }
  if (whole && whole.getType() == getType())
    return whole;
  return {};
}

LogicalResult ExtractOp::inferReturnTypes(
    MLIRContext *context, std::optional<Location> location, ValueRange operands,
    DictionaryAttr attributes, OpaqueProperties properties, RegionRange regions,
    SmallVectorImpl<Type> &types) {
  Adaptor adaptor(operands, attributes, properties, regions);
  auto bucket = dyn_cast<BucketType>(adaptor.getBucket().getType());
  if (!bucket)
    return emitOptionalError(location, "expected a bucket to extract from");
  SmallVector<DenseI64ArrayAttr> shapes;
  llvm::BitVector isTaken(bucket.getNumMembers());
  for (int64_t member : adaptor.getMembers()) { // C1
    if (member < 0 || member >= bucket.getNumMembers())
      return emitOptionalError(location, "expected members below ",
                               bucket.getNumMembers(), ", but got ", member);
    if (isTaken.test(member))
      return emitOptionalError(location, "expected distinct members, but got ",
                               member, " twice");
    isTaken.set(member);
    shapes.push_back(bucket.getShapes()[member]);
  }
  types.push_back(BucketType::get(context, bucket.getElementType(), shapes));
  return success();
}

static bool isAdjacent(ArrayRef<int64_t> members) {
  for (size_t i = 1; i < members.size(); ++i)
    if (members[i] != members[i - 1] + 1)
      return false;
  return true;
}

OpFoldResult ExtractOp::fold(FoldAdaptor) {
  ArrayRef<int64_t> members = getMembers();
  if (getBucket().getType() == getType() && isAdjacent(members))
    return getBucket();
  if (members.empty())
    return {};
  // An extract of an extract reads the outer bucket.
  if (auto outer = getBucket().getDefiningOp<ExtractOp>()) {
    SmallVector<int64_t> composed;
    for (int64_t member : members)
      composed.push_back(outer.getMembers()[member]);
    setOperand(outer.getBucket());
    setMembers(composed);
    return getResult();
  }
  // An extract of exactly one part of a concat is that part.
  auto concat = getBucket().getDefiningOp<ConcatOp>();
  if (concat && !concat.getOrder()) {
    int64_t first = 0;
    for (Value part : concat.getParts()) {
      int64_t size = cast<BucketType>(part.getType()).getNumMembers();
      if (first == members.front() && isAdjacent(members) &&
          size == static_cast<int64_t>(members.size()) && size > 0)
        return part;
      first += size;
    }
  }
  return {};
}
