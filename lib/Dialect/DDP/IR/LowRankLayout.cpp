// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the matrices in a bucket, and their locations in flat memory.

#include "LowRankLayout.h"
#include "Verifiers.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallBitVector.h"

using namespace mlir;
using namespace mlir::ddp;

SmallVector<int64_t> mlir::ddp::getAllMembers(BucketType bucket) {
  return llvm::to_vector(llvm::seq<int64_t>(bucket.getNumMembers()));
}

LogicalResult mlir::ddp::verifyFactors(Operation *op, BucketType bucket,
                                       ArrayRef<int64_t> members, BucketType p,
                                       BucketType q) {
  if (bucket.getElementType() != p.getElementType() ||
      bucket.getElementType() != q.getElementType())
    return op->emitOpError() << "expected buckets of one element type";
  if (members.size() != p.getNumMembers() ||
      members.size() != q.getNumMembers())
    return op->emitOpError()
           << "expected one member of each factor per matrix, that is "
           << members.size() << ", but got " << p.getNumMembers() << " and "
           << q.getNumMembers();
  llvm::SmallBitVector seen(bucket.getNumMembers());
  for (auto [index, member] : llvm::enumerate(members)) {
    if (member < 0 || member >= bucket.getNumMembers() || seen[member])
      return op->emitOpError()
             << "expected distinct members below " << bucket.getNumMembers()
             << ", but got " << member;
    seen.set(member);
    auto [rows, columns] = bucket.getMatrixShape(member);
    auto [pRows, pRank] = p.getMatrixShape(index);
    auto [qRows, qRank] = q.getMatrixShape(index);
    if (rows != pRows || columns != qRows || pRank != qRank)
      return op->emitOpError() << "expected factors of a " << rows << "x"
                               << columns << " matrix, but got " << pRows << "x"
                               << pRank << " and " << qRows << "x" << qRank;
  }
  return success();
}

SmallVector<int64_t> mlir::ddp::getRestMembers(BucketType bucket,
                                               ArrayRef<int64_t> members) {
  llvm::SmallBitVector isListed(bucket.getNumMembers());
  for (int64_t member : members)
    isListed.set(member);
  SmallVector<int64_t> others;
  for (int64_t member : getAllMembers(bucket))
    if (!isListed[member])
      others.push_back(member);
  return others;
}

BucketType mlir::ddp::getSubBucket(BucketType bucket,
                                   ArrayRef<int64_t> members) {
  SmallVector<DenseI64ArrayAttr> shapes;
  for (int64_t member : members)
    shapes.push_back(bucket.getShapes()[member]);
  return BucketType::get(bucket.getContext(), bucket.getElementType(), shapes);
}

MatrixListAttr mlir::ddp::makeLayout(BucketType bucket,
                                     ArrayRef<int64_t> members, BucketType p) {
  SmallVector<int64_t> offsets = {0};
  for (int64_t member : getAllMembers(bucket))
    offsets.push_back(offsets.back() + bucket.getNumElements(member));
  SmallVector<MatrixPlace> matrices;
  SmallVector<PiecePlace> pieces;
  int64_t pOffset = 0, qOffset = 0, restOffset = 0;
  for (auto [index, member] : llvm::enumerate(members)) {
    auto [rows, columns] = bucket.getMatrixShape(member);
    int64_t rank = p.getMatrixShape(index).second;
    matrices.push_back(
        {offsets[member], pOffset, qOffset, rows, columns, rank});
    pOffset += rows * rank;
    qOffset += columns * rank;
  }
  for (int64_t member : getRestMembers(bucket, members)) {
    int64_t count = bucket.getNumElements(member);
    pieces.push_back({offsets[member], restOffset, count});
    restOffset += count;
  }
  return MatrixListAttr::get(bucket.getContext(), 0, offsets.back(), matrices,
                             pieces);
}

LogicalResult MatrixListAttr::verify(
    function_ref<InFlightDiagnostic()> emitError, int64_t begin, int64_t end,
    ArrayRef<MatrixPlace> matrices, ArrayRef<PiecePlace> pieces) {
  auto hasNegative = [](const auto &place) {
    return llvm::any_of(place.getNumbers(), [](int64_t n) { return n < 0; });
  };
  if (begin < 0 || end < begin || llvm::any_of(matrices, hasNegative) ||
      llvm::any_of(pieces, hasNegative)) // C1
    return emitError() << "expected offsets and sizes of at least 0";
  return success();
}

LogicalResult
AssignmentAttr::verify(function_ref<InFlightDiagnostic()> emitError, StringAttr,
                       ArrayRef<int64_t> groups, ArrayRef<int64_t> members,
                       ArrayRef<int64_t> counts) {
  auto isNegative = [](int64_t n) { return n < 0; };
  if (members.size() != counts.size() || llvm::any_of(members, isNegative) ||
      llvm::any_of(counts, isNegative)) // C1
    return emitError() << "expected a count of at least 0 for each member, but "
                       << "got " << members.size() << " members and "
                       << counts.size() << " counts";
  if (groups.empty() || groups.front() != 0 ||
      std::adjacent_find(groups.begin(), groups.end(),
                         std::greater_equal<>()) != groups.end()) // C2
    return emitError()
           << "expected the first members of groups to ascend from 0, "
           << "but got [" << groups << "]";
  return success();
}

int64_t AssignmentAttr::getNumElements() const {
  int64_t sum = 0;
  for (int64_t count : getCounts())
    sum = addElements(sum, std::min(count, kMaxElements));
  return sum;
}

int64_t MatrixListAttr::getNumFactorElements() const {
  int64_t sum = 0;
  for (const MatrixPlace &matrix : getMatrices())
    sum = addElements(sum, matrix.rows * matrix.rank);
  return sum;
}

int64_t MatrixListAttr::getNumPieceElements() const {
  int64_t sum = 0;
  for (const PiecePlace &piece : getPieces())
    sum = addElements(sum, piece.count);
  return sum;
}

LogicalResult mlir::ddp::verifyFlat(Operation *op, MatrixListAttr layout,
                                    const FlatArrays &arrays) {
  SmallVector<Type> types(op->getOperandTypes());
  llvm::append_range(types, op->getResultTypes());
  if (failed(verifyOneKind(op, types)))
    return failure();
  Type elementType = getElementTypeOf(types.front());
  for (Type type : types)
    if (getElementTypeOf(type) != elementType)
      return op->emitOpError()
             << "expected one element type, but got " << elementType << " and "
             << getElementTypeOf(type);
  auto getSize = [](Value value) {
    return value ? getNumElementsOf(value.getType()) : INT64_MAX;
  };
  int64_t matrixSize = getSize(arrays.matrix), pSize = getSize(arrays.p),
          qSize = getSize(arrays.q), restSize = getSize(arrays.rest);
  // True, without overflow, if `size` holds a * b elements from `offset` on.
  auto fits = [](int64_t offset, int64_t a, int64_t b, int64_t size) {
    return offset <= size && (b == 0 || a <= (size - offset) / b);
  };
  for (auto [number, m] : llvm::enumerate(layout.getMatrices()))
    if (!fits(m.offset, m.rows, m.columns, matrixSize) ||
        !fits(m.pOffset, m.rows, m.rank, pSize) ||
        !fits(m.qOffset, m.columns, m.rank, qSize))
      return op->emitOpError() << "expected operands that hold matrix "
                               << number << " of the layout and its factors";
  for (auto [number, piece] : llvm::enumerate(layout.getPieces()))
    if (!fits(piece.offset, piece.count, 1, matrixSize) ||
        !fits(piece.restOffset, piece.count, 1, restSize))
      return op->emitOpError() << "expected operands that hold piece " << number
                               << " of the layout";
  return success();
}

LogicalResult mlir::ddp::verifySameSize(Operation *op, ArrayRef<Value> values) {
  Value first;
  for (Value value : values) {
    if (!value)
      continue;
    if (first &&
        getNumElementsOf(first.getType()) != getNumElementsOf(value.getType()))
      return op->emitOpError() << "expected buckets of one size, but got "
                               << first.getType() << " and " << value.getType();
    first = value;
  }
  return success();
}
