//===- LowRankOps.cpp ------------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Verifiers and layouts of the low-rank operations. The constraint
// that a check enforces stands beside it by its number in the operation's
// description.
//
//===----------------------------------------------------------------------===//

#include "AlgebraVerifiers.h"
#include "LowRankLayout.h"

#include "llvm/ADT/STLExtras.h"
#include <cmath>

using namespace mlir;
using namespace mlir::ddp;

static BucketType getBucketType(Value value) {
  return dyn_cast<BucketType>(value.getType());
}

//===----------------------------------------------------------------------===//
// ddp.matmul
//===----------------------------------------------------------------------===//

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
  if (getTransposeLhs() && getTransposeRhs()) // C2
    return emitOpError() << "expected at most one operand to be transposed";
  if (getMembers() && getTransposeRhs()) // C4
    return emitOpError() << "expected no members with 'transpose_rhs'";
  if (failed(verifyAlgebra(*this)) || failed(verifyLayout(*this))) // C1, C5
    return failure();
  if (!isa<BucketType>(getLhs().getType())) {
    FlatArrays arrays = {getLhs(), getComputed(*this, 0), getRhs(), {}};
    if (getTransposeLhs())
      arrays = {getLhs(), getRhs(), getComputed(*this, 0), {}};
    else if (getTransposeRhs())
      arrays = {getComputed(*this, 0), getLhs(), getRhs(), {}};
    return verifyFlat(*this, *getLayout(), arrays); // C5
  }
  if (!getBucketType(getRhs()) || !getBucketType(getResult())) // C3
    return emitOpError() << "expected buckets, but got " << getRhs().getType()
                         << " and " << getResult().getType();
  MatmulRoles roles = getRoles(*this);
  return verifyFactors(*this, roles.matrix, roles.members, roles.p,
                       roles.q); // C3, C4
}

MatrixListAttr MatmulOp::inferLayout() {
  MatmulRoles roles = getRoles(*this);
  return makeLayout(roles.matrix, roles.members, roles.p);
}

//===----------------------------------------------------------------------===//
// ddp.orthogonalize
//===----------------------------------------------------------------------===//

LogicalResult OrthogonalizeOp::verify() {
  double epsilon = getEpsilon().convertToDouble();
  if (!std::isfinite(epsilon) || epsilon < 0) // C2
    return emitOpError() << "expected a finite epsilon of at least 0, but got "
                         << epsilon;
  if (failed(verifyLayout(*this)) || failed(verifyDestinationType(*this)))
    return failure();               // C3, C4
  if (failed(verifyAlgebra(*this))) // C1
    return failure();
  if (isa<BucketType>(getInput().getType()))
    return success();
  return verifyFlat(*this, *getLayout(), {{}, {}, getInput(), {}}); // C3
}

MatrixListAttr OrthogonalizeOp::inferLayout() {
  BucketType bucket = getBucketType(getInput());
  SmallVector<int64_t> matrices;
  int64_t offset = 0;
  // As factors Q of matrices without rows.
  for (int64_t member : getAllMembers(bucket)) {
    auto [rows, rank] = bucket.getMatrixShape(member);
    matrices.append({0, 0, offset, 0, rows, rank});
    offset += rows * rank;
  }
  return MatrixListAttr::get(getContext(), 0, 0,
                             DenseI64ArrayAttr::get(getContext(), matrices),
                             DenseI64ArrayAttr::get(getContext(), {}));
}

//===----------------------------------------------------------------------===//
// ddp.resize
//===----------------------------------------------------------------------===//

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

//===----------------------------------------------------------------------===//
// ddp.is_finite
//===----------------------------------------------------------------------===//

void IsFiniteOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>
        &effects) {
  if (isa<MemRefType>(getInput().getType()))
    effects.emplace_back(MemoryEffects::Read::get(), &getInputMutable(),
                         SideEffects::DefaultResource::get());
}

//===----------------------------------------------------------------------===//
// ddp.project
//===----------------------------------------------------------------------===//

/// P without the rest that may lie behind it.
static BucketType getPackedP(BucketType packed, size_t numMatrices) {
  return BucketType::get(packed.getContext(), packed.getElementType(),
                         packed.getShapes().take_front(numMatrices));
}

LogicalResult ProjectOp::verify() {
  if (getError() &&
      !haveSameElements(getError().getType(), getInput().getType())) // C2
    return emitOpError() << "expected an error of the operand's type, but got "
                         << getError().getType();
  if (failed(verifyLayout(*this))) // C4
    return failure();
  auto bucket = dyn_cast<BucketType>(getInput().getType());
  bool hasRest = bucket ? getMembers().size() != bucket.getNumMembers()
                        : !getLayout()->getPieces().empty();
  unsigned numValues = getPNumber() + 1 + (hasRest && !getPacked() ? 1 : 0);
  if (failed(verifyAlgebra(*this, numValues))) // C1
    return failure();
  if (!bucket) {
    Value p = getComputed(*this, getPNumber());
    Value rest = hasRest && !getPacked() ? getComputed(*this, getPNumber() + 1)
                                         : Value();
    if (failed(verifyFlat(*this, *getLayout(),
                          {getInput(), p, getFactor(), rest})) ||
        failed(verifySameSize(*this,
                              {getInput(), getError(),
                               getError() ? getComputed(*this, 0) : Value()})))
      return failure(); // C1, C2, C4
    if (getPacked() && getNumElementsOf(p.getType()) !=
                           getLayout()->getNumFactorElements() +
                               getLayout()->getNumPieceElements()) // C1
      return emitOpError() << "expected room for P and the rest, but got "
                           << p.getType();
    return success();
  }
  auto factor = getBucketType(getFactor());
  auto p = getBucketType(getValues()[getPNumber()]);
  if (!factor || !p)
    return emitOpError() << "expected a bucket of factors";
  if (getError() && getValues().front().getType() != bucket) // C1
    return emitOpError() << "expected the sum to have the operand's type";
  // The members are known to be good before those of the rest are asked for.
  BucketType projected = getPacked() ? getPackedP(p, getMembers().size()) : p;
  if (failed(verifyFactors(*this, bucket, getMembers(), projected,
                           factor))) // C3
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

//===----------------------------------------------------------------------===//
// ddp.reconstruct
//===----------------------------------------------------------------------===//

LogicalResult ReconstructOp::verify() {
  if (getGroup() && !getMatrix()) // C5
    return emitOpError() << "expected a process group only with a matrix";
  if (failed(verifyLayout(*this))) // C4
    return failure();
  if (failed(verifyAlgebra(*this, getMatrix() ? 2 : 1))) // C1
    return failure();
  auto p = getBucketType(getP()), q = getBucketType(getQ());
  if (!p) {
    if (failed(verifyFlat(*this, *getLayout(),
                          {getComputed(*this, 0), getP(), getQ(), getRest()})))
      return failure(); // C4
    return verifySameSize(
        *this, {getComputed(*this, 0), getMatrix(),
                getMatrix() ? getComputed(*this, 1) : Value()}); // C1, C2
  }
  auto bucket = getBucketType(getValues().front());
  if (!q || !bucket)
    return emitOpError() << "expected buckets";
  if (getMatrix() && (getMatrix().getType() != bucket ||
                      getValues().back().getType() != bucket)) // C2
    return emitOpError() << "expected matrix and error to have the type "
                         << bucket;
  if (failed(verifyFactors(*this, bucket, getMembers(), p, q))) // C3
    return failure();
  SmallVector<int64_t> rest = getRestMembers(bucket, getMembers());
  if (rest.empty() != !getRest() ||
      (getRest() && getRest().getType() != getSubBucket(bucket, rest))) // C1
    return emitOpError() << "expected the rest to be "
                         << getSubBucket(bucket, rest);
  return success();
}

LogicalResult ReconstructOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (!getGroupAttr())
    return success();
  return verifyGroup(*this, getGroupAttr(), symbols); // C5
}

MatrixListAttr ReconstructOp::inferLayout() {
  return makeLayout(getBucketType(getValues().front()), getMembers(),
                    getBucketType(getP()));
}
