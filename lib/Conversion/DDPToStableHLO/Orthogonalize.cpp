//===- Orthogonalize.cpp ---------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Modified Gram-Schmidt and Householder QR, column by column, without loops: a
// rank is small, and known.
//
//===----------------------------------------------------------------------===//

#include "Orthogonalize.h"

using namespace mlir;
using namespace mlir::ddp;

/// Column k of a matrix, as a 1-D tensor.
static TensorValue getColumn(HLOBuilder &hlo, TensorValue matrix, int64_t k) {
  int64_t rows = matrix.getType().getDimSize(0);
  return hlo.reshape(hlo.slice(matrix, {0, k}, {rows, k + 1}), rows);
}

static TensorValue asColumn(HLOBuilder &hlo, TensorValue vector) {
  return hlo.reshape(vector, {vector.getType().getDimSize(0), 1});
}

static RankedTensorType getScalar(TensorValue value) {
  return RankedTensorType::get({}, value.getType().getElementType());
}

//===----------------------------------------------------------------------===//
// Gram-Schmidt
//===----------------------------------------------------------------------===//

namespace {
/// Sums are accumulated in f32 at least. In 16-bit types every operation on
/// elements is rounded, as are norms and sums.
class GramSchmidt {
public:
  GramSchmidt(HLOBuilder &hlo, Type elementType)
      : hlo(hlo), type(elementType),
        wide(isNarrow(elementType) ? Float32Type::get(elementType.getContext())
                                   : elementType) {}

  void run(MutableArrayRef<TensorValue> columns, double epsilon,
           bool unitColumns);

private:
  TensorValue getNorm(TensorValue column) {
    TensorValue elements = hlo.convert(column, wide);
    TensorValue squares = hlo.sum(hlo.binary("multiply", elements, elements));
    return hlo.convert(hlo.unary("sqrt", squares), type);
  }
  TensorValue getProduct(TensorValue a, TensorValue b) {
    TensorValue products = hlo.keepRounding(hlo.binary("multiply", a, b));
    return hlo.convert(hlo.sum(hlo.convert(products, wide)), type);
  }
  /// `column` without `factor` times `direction`.
  TensorValue subtract(TensorValue column, TensorValue factor,
                       TensorValue direction) {
    TensorValue part = hlo.keepRounding(hlo.binary(
        "multiply", hlo.splat(factor, direction.getType()), direction));
    return hlo.keepRounding(hlo.binary("subtract", column, part));
  }
  TensorValue divide(TensorValue column, TensorValue norm) {
    return hlo.keepRounding(hlo.divideBy(column, norm));
  }
  TensorValue makeUnitColumn(ArrayRef<TensorValue> before, TensorValue column);

  HLOBuilder &hlo;
  Type type, wide;
};
} // namespace

/// A unit vector without its projection on the columns before it, which are
/// orthonormal; the first one of which most is left.
TensorValue GramSchmidt::makeUnitColumn(ArrayRef<TensorValue> before,
                                        TensorValue column) {
  MLIRContext *context = type.getContext();
  ArrayRef<int64_t> shape = column.getType().getShape();
  auto wideType = RankedTensorType::get(shape, wide);
  auto wideScalar = RankedTensorType::get({}, wide);
  auto indexType = RankedTensorType::get(shape, IntegerType::get(context, 64));
  auto index = RankedTensorType::get({}, indexType.getElementType());
  Attribute first = IntegerAttr::get(indexType.getElementType(), 0);
  TensorValue indices = hlo.create(
      "iota", indexType, {},
      NamedAttribute(StringAttr::get(context, "iota_dimension"), first));
  // The part of unit vector i that is in the span: the squares of row i.
  TensorValue squares = hlo.constant(0.0, wideType);
  SmallVector<TensorValue> columns;
  for (TensorValue other : before) {
    columns.push_back(hlo.convert(other, wide));
    squares = hlo.binary(
        "add", squares, hlo.binary("multiply", columns.back(), columns.back()));
  }
  double infinity = std::numeric_limits<double>::infinity();
  TensorValue least =
      hlo.reduce("minimum", squares, hlo.constant(infinity, wideScalar), {0});
  TensorValue isLeast =
      hlo.compare("EQ", squares, hlo.splat(least, squares.getType()));
  TensorValue best = hlo.reduce(
      "minimum",
      hlo.select(isLeast, indices, hlo.constant(shape[0], indexType)),
      hlo.constant(shape[0], index), {0});
  TensorValue isBest =
      hlo.compare("EQ", indices, hlo.splat(best, indices.getType()));
  TensorValue unit = hlo.convert(isBest, wide);
  TensorValue left = unit;
  for (TensorValue other : columns) {
    TensorValue element = hlo.sum(hlo.binary("multiply", unit, other));
    left =
        hlo.binary("subtract", left,
                   hlo.binary("multiply", hlo.splat(element, wideType), other));
  }
  TensorValue norm =
      hlo.unary("sqrt", hlo.sum(hlo.binary("multiply", left, left)));
  return hlo.convert(hlo.divideBy(left, norm), type);
}

void GramSchmidt::run(MutableArrayRef<TensorValue> columns, double epsilon,
                      bool unitColumns) {
  for (size_t k = 0; k < columns.size(); ++k) {
    TensorValue column = columns[k];
    TensorValue norm = getNorm(column);
    TensorValue divisor = norm;
    if (epsilon != 0) {
      TensorValue wideNorm = hlo.convert(norm, wide);
      TensorValue more = hlo.constant(epsilon, wideNorm.getType());
      divisor = hlo.convert(hlo.binary("add", wideNorm, more), type);
    }
    TensorValue normalized = divide(column, divisor);
    if (unitColumns) {
      TensorValue zero = hlo.constant(0.0, norm.getType());
      normalized =
          hlo.select(hlo.compare("EQ", norm, zero),
                     makeUnitColumn(columns.take_front(k), column), normalized);
    }
    columns[k] = normalized;
    for (TensorValue &later : columns.drop_front(k + 1))
      later = subtract(later, getProduct(normalized, later), normalized);
  }
}

//===----------------------------------------------------------------------===//
// Householder
//===----------------------------------------------------------------------===//

namespace {
/// H = I - tau·v·vᵀ, with a 1 at the start of v.
struct Reflector {
  TensorValue v, tau;
};
} // namespace

/// The reflector that takes a column to a multiple of its first element, with
/// the signs of LAPACK's larfg. A column that is zero but for that element is
/// not reflected.
static Reflector makeReflector(HLOBuilder &hlo, TensorValue column) {
  RankedTensorType scalar = getScalar(column);
  int64_t rows = column.getType().getDimSize(0);
  TensorValue zero = hlo.constant(0.0, scalar), one = hlo.constant(1.0, scalar);
  if (rows == 1)
    return {hlo.reshape(one, 1), zero};
  // Squares of the largest element must neither overflow nor vanish.
  TensorValue largest = hlo.largest(column);
  TensorValue isUsable =
      hlo.binary("and",
                 hlo.create("is_finite",
                            cast<RankedTensorType>(
                                hlo.compare("EQ", largest, zero).getType()),
                            largest),
                 hlo.compare("GT", largest, zero));
  TensorValue scaled = hlo.divideBy(column, hlo.select(isUsable, largest, one));
  TensorValue pivot = hlo.reshape(hlo.slice(scaled, 0, 1), {});
  TensorValue below = hlo.slice(scaled, 1, rows);
  TensorValue isZero = hlo.compare("EQ", hlo.largest(below), zero);
  TensorValue squares =
      hlo.binary("add", hlo.binary("multiply", pivot, pivot),
                 hlo.sum(hlo.binary("multiply", below, below)));
  TensorValue norm = hlo.unary("sqrt", squares);
  TensorValue beta = hlo.select(hlo.compare("LT", pivot, zero), norm,
                                hlo.unary("negate", norm));
  TensorValue tau = hlo.select(
      isZero, zero,
      hlo.binary("divide", hlo.binary("subtract", beta, pivot), beta));
  // Where there is nothing to reflect, this would divide by zero.
  TensorValue divisor =
      hlo.select(isZero, one, hlo.binary("subtract", pivot, beta));
  TensorValue tail = hlo.divideBy(below, divisor);
  return {hlo.concatenate({hlo.reshape(one, 1), tail}, 0), tau};
}

/// matrix - v·(tau·weights)ᵀ.
static TensorValue subtractOuter(HLOBuilder &hlo, TensorValue matrix,
                                 const Reflector &reflector,
                                 TensorValue weights) {
  TensorValue scaled = hlo.binary(
      "multiply", hlo.splat(reflector.tau, weights.getType()), weights);
  TensorValue outer =
      hlo.binary("multiply", hlo.broadcast(reflector.v, matrix.getType(), 0),
                 hlo.broadcast(scaled, matrix.getType(), 1));
  return hlo.binary("subtract", matrix, outer);
}

/// The Q of a QR decomposition, as LAPACK's geqr2 and org2r.
static TensorValue householder(HLOBuilder &hlo, TensorValue matrix) {
  Type type = matrix.getType().getElementType();
  SmallVector<Reflector> reflectors;
  TensorValue rest = matrix;
  int64_t rank = matrix.getType().getDimSize(1);
  for (int64_t k = 0; k < rank; ++k) {
    int64_t rows = rest.getType().getDimSize(0), columns = rank - k;
    Reflector reflector = makeReflector(hlo, getColumn(hlo, rest, 0));
    reflectors.push_back(reflector);
    if (columns == 1)
      break;
    TensorValue others = hlo.slice(rest, {0, 1}, {rows, columns});
    TensorValue weights = hlo.dot(reflector.v, 0, others, 0, type);
    others = subtractOuter(hlo, others, reflector, weights);
    rest = hlo.slice(others, {1, 0}, {rows, columns - 1});
  }
  TensorValue q;
  for (const Reflector &reflector : llvm::reverse(reflectors)) {
    int64_t rows = reflector.v.getType().getDimSize(0);
    // The first unit vector, reflected: v begins with 1.
    TensorValue scaled =
        hlo.binary("multiply", hlo.splat(reflector.tau, reflector.v.getType()),
                   reflector.v);
    TensorValue one = hlo.constant(1.0, RankedTensorType::get(1, type));
    TensorValue unit = one;
    if (rows > 1)
      unit = hlo.concatenate(
          {one, hlo.constant(0.0, RankedTensorType::get(rows - 1, type))}, 0);
    TensorValue first = asColumn(hlo, hlo.binary("subtract", unit, scaled));
    if (!q) {
      q = first;
      continue;
    }
    int64_t columns = q.getType().getDimSize(1);
    TensorValue weights =
        hlo.dot(hlo.slice(reflector.v, 1, rows), 0, q, 0, type);
    TensorValue padded = hlo.concatenate(
        {hlo.constant(0.0, RankedTensorType::get({1, columns}, type)), q}, 0);
    q = hlo.concatenate({first, subtractOuter(hlo, padded, reflector, weights)},
                        1);
  }
  return q;
}

TensorValue mlir::ddp::orthogonalize(HLOBuilder &hlo, TensorValue matrix,
                                     double epsilon, bool unitColumns) {
  RankedTensorType type = matrix.getType();
  Type elementType = type.getElementType();
  int64_t rows = type.getDimSize(0), rank = type.getDimSize(1);
  if (rows == 0 || rank == 0)
    return matrix;
  int64_t count = std::min(rows, rank);
  TensorValue result;
  if (rank > 2 && !isNarrow(elementType)) {
    result = householder(hlo, hlo.slice(matrix, {0, 0}, {rows, count}));
  } else {
    SmallVector<TensorValue> columns;
    for (int64_t k = 0; k < count; ++k)
      columns.push_back(getColumn(hlo, matrix, k));
    GramSchmidt(hlo, elementType).run(columns, epsilon, unitColumns);
    for (TensorValue &column : columns)
      column = asColumn(hlo, column);
    result = hlo.concatenate(columns, 1);
  }
  if (count == rank)
    return result;
  // No direction is left for the others.
  auto others = RankedTensorType::get({rows, rank - count}, elementType);
  return hlo.concatenate({result, hlo.constant(0.0, others)}, 1);
}
