// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Verifiers and layouts of the low-rank operations.

#include "LowRankLayout.h"
#include "Verifiers.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace mlir::ddp;

static BucketType getBucketType(Value value) {
  return cast<BucketType>(value.getType());
}

namespace {
/// The buckets of a product by their roles.
struct MatmulRoles {
  BucketType matrix, p, q;
  SmallVector<int64_t> members;
};
} // namespace

static MatmulRoles getRoles(MatmulOp op) {
  BucketType lhs = getBucketType(op.getLhs()), rhs = getBucketType(op.getRhs()),
             result = getBucketType(op.getResult());
  MatmulRoles roles = {lhs, result, rhs, {}};
  if (op.getTransposeLhs())
    roles = {lhs, rhs, result, {}};
  else if (op.getTransposeRhs())
    roles = {result, lhs, rhs, {}};
  if (std::optional<ArrayRef<int64_t>> members = op.getMembers())
    llvm::append_range(roles.members, *members);
  else
    roles.members = getAllMembers(roles.matrix);
  return roles;
}

LogicalResult MatmulOp::verify() {
  if (failed(verifyTransposes(*this))) // C1
    return failure();
  if (getMembers() && getTransposeRhs()) // C3
    return emitOpError() << "expected no members with 'transpose_rhs'";
  MatmulRoles roles = getRoles(*this);
  return verifyFactors(*this, roles.matrix, roles.members, roles.p,
                       roles.q); // C2, C3
}

MatrixListAttr MatmulOp::inferLayout() {
  MatmulRoles roles = getRoles(*this);
  return makeLayout(roles.matrix, roles.members, roles.p);
}

LogicalResult OrthogonalizeOp::verify() { return verifyEpsilon(*this); } // C1

MatrixListAttr OrthogonalizeOp::inferLayout() {
  BucketType bucket = getBucketType(getInput());
  SmallVector<MatrixPlace> matrices;
  int64_t offset = 0;
  // Treat them as factors Q of matrices without rows.
  for (int64_t member : getAllMembers(bucket)) {
    auto [rows, rank] = bucket.getMatrixShape(member);
    matrices.push_back({0, 0, offset, 0, rows, rank});
    offset += rows * rank;
  }
  return MatrixListAttr::get(getContext(), 0, 0, matrices, /*pieces=*/{});
}

LogicalResult ResizeOp::verify() {
  Type from = getElementTypeOf(getBucket().getType());
  Type to = getElementTypeOf(getType());
  if (from != to) // C1
    return emitOpError() << "expected buckets of one element type, but got "
                         << from << " and " << to;
  return success();
}

OpFoldResult ResizeOp::fold(FoldAdaptor) {
  return getBucket().getType() == getType() ? getBucket() : OpFoldResult();
}

void IsFiniteOp::getEffects(
    SmallVectorImpl<MemoryEffects::EffectInstance> &effects) {
  if (isa<MemRefType>(getInput().getType()))
    effects.emplace_back(MemoryEffects::Read::get(), &getInputMutable());
}

/// Returns P without the rest that may follow it.
static BucketType getPackedP(BucketType packed, size_t numMatrices) {
  return BucketType::get(packed.getContext(), packed.getElementType(),
                         packed.getShapes().take_front(numMatrices));
}

LogicalResult ProjectOp::verify() {
  BucketType bucket = getBucketType(getInput());
  if (getError() && getError().getType() != bucket) // C2
    return emitOpError() << "expected an error of the operand's type, but got "
                         << getError().getType();
  bool hasRest = getMembers().size() != bucket.getNumMembers();
  if (failed(verifyCount(*this, getValues().size(),
                         getPNumber() + (hasRest && !getPacked() ? 2 : 1),
                         "results"))) // C1
    return failure();
  BucketType p = getBucketType(getValues()[getPNumber()]);
  if (getError() && getValues().front().getType() != bucket) // C1
    return emitOpError() << "expected the sum to have the operand's type";
  // Check the members before computing the rest from them.
  BucketType projected = getPacked() ? getPackedP(p, getMembers().size()) : p;
  if (failed(verifyFactors(*this, bucket, getMembers(), projected,
                           getBucketType(getFactor())))) // C3
    return failure();
  BucketType rest = getSubBucket(bucket, getRestMembers(bucket, getMembers()));
  BucketType given = getBucketType(getValues().back());
  if (getPacked())
    given = BucketType::get(getContext(), p.getElementType(),
                            p.getShapes().drop_front(getMembers().size()));
  if (hasRest && given != rest) // C1
    return emitOpError() << "expected the rest to be " << rest << ", but got "
                         << given;
  return success();
}

MatrixListAttr ProjectOp::inferLayout() {
  return makeLayout(getBucketType(getInput()), getMembers(),
                    getBucketType(getValues()[getPNumber()]));
}

LogicalResult ReconstructOp::verify() {
  if (failed(verifyDivided(*this)) || // C4
      failed(verifyCount(*this, getValues().size(), getMatrix() ? 2 : 1,
                         "results"))) // C1
    return failure();
  BucketType bucket = getBucketType(getValues().front());
  if (getMatrix() && (getMatrix().getType() != bucket ||
                      getValues().back().getType() != bucket)) // C2
    return emitOpError() << "expected matrix and error to have the type "
                         << bucket;
  if (failed(verifyFactors(*this, bucket, getMembers(), getBucketType(getP()),
                           getBucketType(getQ())))) // C3
    return failure();
  SmallVector<int64_t> rest = getRestMembers(bucket, getMembers());
  if (rest.empty() != !getRest() ||
      (getRest() && getRest().getType() != getSubBucket(bucket, rest))) // C1
    return emitOpError() << "expected the rest to be "
                         << getSubBucket(bucket, rest);
  return success();
}

MatrixListAttr ReconstructOp::inferLayout() {
  return makeLayout(getBucketType(getValues().front()), getMembers(),
                    getBucketType(getP()));
}
