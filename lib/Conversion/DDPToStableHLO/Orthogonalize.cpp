// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Modified Gram-Schmidt and Householder QR, column by column and unrolled: the
// rank is small and static. All matrices are processed together, so "a column"
// is a 2-D tensor, with one row per matrix, and "a number" a 1-D tensor.

#include "ExportFunction.h"

#include <cmath>

using namespace mlir;
using namespace mlir::ddp;

/// Returns columns first ≤ k < last.
static TensorValue sliceColumns(HLOBuilder &hlo, TensorValue matrices,
                                int64_t first, int64_t last) {
  ArrayRef<int64_t> shape = matrices.getType().getShape();
  return hlo.slice(matrices, {0, 0, first}, {shape[0], shape[1], last});
}

static TensorValue sliceRows(HLOBuilder &hlo, TensorValue column, int64_t first,
                             int64_t last) {
  return hlo.slice(column, {0, first}, {column.getType().getDimSize(0), last});
}

static TensorValue getColumn(HLOBuilder &hlo, TensorValue matrices, int64_t k) {
  ArrayRef<int64_t> shape = matrices.getType().getShape();
  return hlo.reshape(sliceColumns(hlo, matrices, k, k + 1),
                     {shape[0], shape[1]});
}

static TensorValue asMatrices(HLOBuilder &hlo, TensorValue column) {
  ArrayRef<int64_t> shape = column.getType().getShape();
  return hlo.reshape(column, {shape[0], shape[1], 1});
}

static TensorValue multiply(HLOBuilder &hlo, TensorValue numbers,
                            TensorValue column) {
  return hlo.binary("multiply", hlo.repeat(numbers, column.getType()), column);
}

namespace {
/// Accumulates sums in at least f32. In 16-bit types it rounds every
/// elementwise result, norm and sum.
class GramSchmidt {
public:
  GramSchmidt(HLOBuilder &hlo, Type elementType)
      : hlo(hlo), type(elementType),
        wide(isNarrow(elementType) ? Float32Type::get(elementType.getContext())
                                   : elementType) {}

  void run(MutableArrayRef<TensorValue> columns, OrthogonalizeOp op);

private:
  TensorValue getNorm(TensorValue column) {
    TensorValue elements = hlo.convert(column, wide);
    TensorValue squares = hlo.sum(hlo.binary("multiply", elements, elements));
    return hlo.convert(hlo.unary("sqrt", squares), type);
  }
  /// Returns the norm at or below which a column, without its projections,
  /// depends on the columns before it: half of the digits of its norm.
  TensorValue getLeastNorm(TensorValue column) {
    unsigned digits = cast<FloatType>(type).getFPMantissaWidth();
    TensorValue norm = hlo.convert(getNorm(column), wide);
    double part = std::ldexp(1.0, -static_cast<int>((digits + 1) / 2));
    return hlo.binary("multiply", norm, hlo.constant(part, norm.getType()));
  }
  TensorValue getProduct(TensorValue a, TensorValue b) {
    TensorValue products = hlo.keepRounding(hlo.binary("multiply", a, b));
    return hlo.convert(hlo.sum(hlo.convert(products, wide)), type);
  }
  /// Returns `column` without `factor` times `direction`.
  TensorValue subtract(TensorValue column, TensorValue factor,
                       TensorValue direction) {
    TensorValue part = hlo.keepRounding(multiply(hlo, factor, direction));
    return hlo.keepRounding(hlo.binary("subtract", column, part));
  }
  TensorValue makeUnitColumn(ArrayRef<TensorValue> before, TensorValue column);

  HLOBuilder &hlo;
  Type type, wide;
};
} // namespace

/// Returns the unit vector that is farthest from the orthonormal columns
/// `before`, the first of equal ones, without its projection, normalized.
TensorValue GramSchmidt::makeUnitColumn(ArrayRef<TensorValue> before,
                                        TensorValue column) {
  MLIRContext *context = type.getContext();
  ArrayRef<int64_t> shape = column.getType().getShape();
  int64_t rows = shape[1];
  auto wideType = RankedTensorType::get(shape, wide);
  auto indexType = RankedTensorType::get(shape, IntegerType::get(context, 64));
  auto index = RankedTensorType::get({}, indexType.getElementType());
  Attribute alongRows = IntegerAttr::get(indexType.getElementType(), 1);
  TensorValue indices = hlo.create(
      "iota", indexType, {},
      NamedAttribute(StringAttr::get(context, "iota_dimension"), alongRows));
  // The squared projection of unit vector i on the span: squares of row i.
  TensorValue squares = hlo.constant(0.0, wideType);
  SmallVector<TensorValue> columns;
  for (TensorValue other : before) {
    columns.push_back(hlo.convert(other, wide));
    squares = hlo.binary(
        "add", squares, hlo.binary("multiply", columns.back(), columns.back()));
  }
  double infinity = std::numeric_limits<double>::infinity();
  TensorValue least =
      hlo.reduce("minimum", squares,
                 hlo.constant(infinity, RankedTensorType::get({}, wide)), 1);
  TensorValue isLeast =
      hlo.compare("EQ", squares, hlo.repeat(least, squares.getType()));
  TensorValue best = hlo.reduce(
      "minimum", hlo.select(isLeast, indices, hlo.constant(rows, indexType)),
      hlo.constant(rows, index), 1);
  TensorValue isBest =
      hlo.compare("EQ", indices, hlo.repeat(best, indices.getType()));
  TensorValue unit = hlo.convert(isBest, wide);
  TensorValue left = unit;
  for (TensorValue other : columns) {
    TensorValue element = hlo.sum(hlo.binary("multiply", unit, other));
    left = hlo.binary("subtract", left, multiply(hlo, element, other));
  }
  TensorValue norm =
      hlo.unary("sqrt", hlo.sum(hlo.binary("multiply", left, left)));
  return hlo.convert(hlo.divideBy(left, norm), type);
}

void GramSchmidt::run(MutableArrayRef<TensorValue> columns,
                      OrthogonalizeOp op) {
  double epsilon = op.getEpsilonAttr().getValueAsDouble();
  SmallVector<TensorValue> least;
  if (op.getIndependentColumns())
    for (TensorValue column : columns)
      least.push_back(getLeastNorm(column));
  for (size_t k = 0; k < columns.size(); ++k) {
    TensorValue column = columns[k];
    TensorValue norm = getNorm(column), divisor = norm;
    if (epsilon != 0) {
      TensorValue wideNorm = hlo.convert(norm, wide);
      TensorValue more = hlo.constant(epsilon, wideNorm.getType());
      divisor = hlo.convert(hlo.binary("add", wideNorm, more), type);
    }
    TensorValue normalized = hlo.keepRounding(hlo.divideBy(column, divisor));
    TensorValue isReplaced;
    if (op.getUnitColumns())
      isReplaced =
          hlo.compare("EQ", divisor, hlo.constant(0.0, divisor.getType()));
    if (op.getIndependentColumns()) {
      TensorValue isLeast =
          hlo.compare("LE", hlo.convert(norm, wide), least[k]);
      isLeast = hlo.binary(
          "and", isLeast,
          hlo.create("is_finite", isLeast.getType(), ValueRange(least[k])));
      isReplaced = isReplaced ? hlo.binary("or", isReplaced, isLeast) : isLeast;
    }
    if (isReplaced) {
      auto each = RankedTensorType::get(column.getType().getShape(),
                                        isReplaced.getType().getElementType());
      normalized =
          hlo.select(hlo.repeat(isReplaced, each),
                     makeUnitColumn(columns.take_front(k), column), normalized);
    }
    columns[k] = normalized;
    for (TensorValue &later : columns.drop_front(k + 1))
      later = subtract(later, getProduct(normalized, later), normalized);
  }
}

namespace {
/// H = I - tau·v·vᵀ, where v starts with 1.
struct Reflector {
  TensorValue v, tau;
};
} // namespace

/// Returns the reflector that maps a column to a multiple of the first unit
/// vector, with the signs of LAPACK's larfg. A column whose other elements are
/// zero is not reflected.
static Reflector makeReflector(HLOBuilder &hlo, TensorValue column) {
  Type type = column.getType().getElementType();
  int64_t count = column.getType().getDimSize(0);
  int64_t rows = column.getType().getDimSize(1);
  auto numbers = RankedTensorType::get(count, type);
  TensorValue zero = hlo.constant(0.0, numbers);
  TensorValue one = hlo.constant(1.0, numbers);
  TensorValue firstRow = hlo.reshape(one, {count, 1});
  if (rows == 1)
    return {firstRow, zero};
  // Scale so that squares neither overflow nor underflow.
  TensorValue largest = hlo.largest(column);
  TensorValue isPositive = hlo.compare("GT", largest, zero);
  TensorValue isUsable =
      hlo.binary("and", hlo.create("is_finite", isPositive.getType(), largest),
                 isPositive);
  TensorValue scaled = hlo.divideBy(column, hlo.select(isUsable, largest, one));
  TensorValue pivot = hlo.reshape(sliceRows(hlo, scaled, 0, 1), count);
  TensorValue below = sliceRows(hlo, scaled, 1, rows);
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
  // Avoids a division by zero if there is nothing to reflect.
  TensorValue divisor =
      hlo.select(isZero, one, hlo.binary("subtract", pivot, beta));
  TensorValue tail = hlo.divideBy(below, divisor);
  return {hlo.concatenate({firstRow, tail}, 1), tau};
}

/// Returns matrices - v·(tau·weights)ᵀ.
static TensorValue subtractOuter(HLOBuilder &hlo, TensorValue matrices,
                                 const Reflector &reflector,
                                 TensorValue weights) {
  RankedTensorType type = matrices.getType();
  TensorValue scaled = multiply(hlo, reflector.tau, weights);
  TensorValue outer =
      hlo.binary("multiply", hlo.broadcast(reflector.v, type, {0, 1}),
                 hlo.broadcast(scaled, type, {0, 2}));
  return hlo.binary("subtract", matrices, outer);
}

/// Returns vᵀ·matrices for each matrix.
static TensorValue project(HLOBuilder &hlo, TensorValue v,
                           TensorValue matrices) {
  return hlo.dot(v, 1, matrices, 1, v.getType().getElementType(),
                 /*numBatch=*/1);
}

/// Returns the Q of a QR decomposition, as LAPACK's geqr2 and org2r.
static TensorValue householder(HLOBuilder &hlo, TensorValue matrices) {
  Type type = matrices.getType().getElementType();
  int64_t count = matrices.getType().getDimSize(0);
  int64_t rank = matrices.getType().getDimSize(2);
  SmallVector<Reflector> reflectors;
  TensorValue rest = matrices;
  for (int64_t k = 0; k < rank; ++k) {
    int64_t rows = rest.getType().getDimSize(1), columns = rank - k;
    Reflector reflector = makeReflector(hlo, getColumn(hlo, rest, 0));
    reflectors.push_back(reflector);
    if (columns == 1)
      break;
    TensorValue others = sliceColumns(hlo, rest, 1, columns);
    others = subtractOuter(hlo, others, reflector,
                           project(hlo, reflector.v, others));
    rest = hlo.slice(others, {0, 1, 0}, {count, rows, columns - 1});
  }
  TensorValue q;
  for (const Reflector &reflector : llvm::reverse(reflectors)) {
    int64_t rows = reflector.v.getType().getDimSize(1);
    // The first unit vector, reflected: v starts with 1.
    TensorValue unit =
        hlo.constant(1.0, RankedTensorType::get({count, 1}, type));
    if (rows > 1)
      unit = hlo.concatenate(
          {unit,
           hlo.constant(0.0, RankedTensorType::get({count, rows - 1}, type))},
          1);
    TensorValue first =
        asMatrices(hlo, hlo.binary("subtract", unit,
                                   multiply(hlo, reflector.tau, reflector.v)));
    if (!q) {
      q = first;
      continue;
    }
    int64_t columns = q.getType().getDimSize(2);
    TensorValue weights = project(hlo, sliceRows(hlo, reflector.v, 1, rows), q);
    TensorValue padded = hlo.concatenate(
        {hlo.constant(0.0, RankedTensorType::get({count, 1, columns}, type)),
         q},
        1);
    q = hlo.concatenate({first, subtractOuter(hlo, padded, reflector, weights)},
                        2);
  }
  return q;
}

TensorValue mlir::ddp::orthogonalize(HLOBuilder &hlo, TensorValue matrices,
                                     OrthogonalizeOp op) {
  RankedTensorType type = matrices.getType();
  Type elementType = type.getElementType();
  int64_t numMatrices = type.getDimSize(0), rows = type.getDimSize(1),
          rank = type.getDimSize(2);
  if (type.getNumElements() == 0)
    return matrices;
  int64_t count = std::min(rows, rank);
  TensorValue result;
  if (rank > 2 && !isNarrow(elementType)) {
    result = householder(hlo, sliceColumns(hlo, matrices, 0, count));
  } else {
    SmallVector<TensorValue> columns;
    for (int64_t k = 0; k < count; ++k)
      columns.push_back(getColumn(hlo, matrices, k));
    GramSchmidt(hlo, elementType).run(columns, op);
    for (TensorValue &column : columns)
      column = asMatrices(hlo, column);
    result = hlo.concatenate(columns, 2);
  }
  if (count == rank)
    return result;
  // No direction is left for the remaining columns.
  auto others =
      RankedTensorType::get({numMatrices, rows, rank - count}, elementType);
  return hlo.concatenate({result, hlo.constant(0.0, others)}, 2);
}
