//===- lowrank_orthogonalize.cpp - orthonormal columns --------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Modified Gram-Schmidt and Householder QR on packed columns. Loops go to the
// end of the last block: behind every column there are zeros, and they stay
// zeros.
//
//===----------------------------------------------------------------------===//
#include "lowrank.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lowrank_orthogonalize.cpp"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "lowrank_scratch.h"

#include "blocks-inl.h"

#include <cmath>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace ddphook::host::HWY_NAMESPACE {

template <class T>
HWY_INLINE Block<T> loadColumn(const T *p) {
  return loadBlock<ElementOf<T>>(p);
}
template <class T>
HWY_INLINE void storeColumn(const Block<T> &block, T *p) {
  storeBlock<ElementOf<T>>(block, p);
}

/// The sum of term(i) over the blocks that begin at i = 0, block, … < n.
template <class T, class Term>
HWY_INLINE T sumTerms(size_t n, const Term &term) {
  constexpr size_t step = kBlock<T>;
  Block<T> sums[4];
  HWY_UNROLL(4)
  for (size_t t = 0; t < 4; ++t)
    sums[t] = setBlock(T(0));
  size_t i = 0;
  for (; i + 4 * step <= n; i += 4 * step) {
    HWY_UNROLL(4)
    for (size_t t = 0; t < 4; ++t)
      sums[t] = term(i + t * step, sums[t]);
  }
  HWY_UNROLL(4)
  for (size_t t = 0; t < 4; ++t) {
    if (i + t * step < n)
      sums[t] = term(i + t * step, sums[t]);
  }
  return sumBlock(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
}

template <class T>
T dot(const T *a, const T *b, size_t n) {
  return sumTerms<T>(n, [&](size_t i, const Block<T> &sum) HWY_ATTR {
    return mulAdd(loadColumn(a + i), loadColumn(b + i), sum);
  });
}

/// a -= factor * b.
template <class T>
void subtractMultiple(T *a, T factor, const T *b, size_t n) {
  const auto negative = setBlock(-factor);
  for (size_t i = 0; i < n; i += kBlock<T>)
    storeColumn(mulAdd(negative, loadColumn(b + i), loadColumn(a + i)), a + i);
}

template <class T>
void scale(T *a, T factor, size_t n) {
  const auto factors = setBlock(factor);
  for (size_t i = 0; i < n; i += kBlock<T>)
    storeColumn(mul(factors, loadColumn(a + i)), a + i);
}

/// Columns that no direction is left for.
template <class T>
void clearColumns(T *columns, size_t stride, size_t first, size_t rank) {
  for (size_t k = first; k < rank; ++k)
    std::fill(columns + k * stride, columns + (k + 1) * stride, T(0));
}

/// Replaces column k by a unit vector without its projection on the columns
/// before it, which are orthonormal; the one of which most is left.
template <class Element, class T>
void makeUnitColumn(T *columns, size_t stride, size_t rows, size_t k) {
  // How much of unit vector i is in the span: the sum of squares of row i.
  size_t best = 0;
  T least = std::numeric_limits<T>::infinity();
  for (size_t i = 0; i < rows; ++i) {
    T squares = 0;
    for (size_t l = 0; l < k; ++l)
      squares += columns[l * stride + i] * columns[l * stride + i];
    if (squares < least) {
      least = squares;
      best = i;
    }
  }
  T *column = columns + k * stride;
  std::fill(column, column + stride, T(0));
  column[best] = 1;
  for (size_t l = 0; l < k; ++l)
    subtractMultiple(column, columns[l * stride + best], columns + l * stride,
                     rows);
  const T norm = std::sqrt(dot(column, column, rows));
  for (size_t i = 0; i < rows; ++i)
    column[i] = roundScalar<Element>(column[i] / norm);
}

template <class Element, class T = ComputeOf<Element>>
void gramSchmidt(T *columns, size_t rows, size_t rank, double epsilon,
                 bool unitColumns) {
  const size_t stride = packedStride(rows);
  const size_t count = std::min(rows, rank);
  for (size_t k = 0; k < count; ++k) {
    T *column = columns + k * stride;
    T norm = roundScalar<Element>(std::sqrt(dot(column, column, rows)));
    if (unitColumns && norm == 0) {
      makeUnitColumn<Element>(columns, stride, rows, k);
    } else {
      if (epsilon != 0)
        norm = roundScalar<Element>(norm + static_cast<T>(epsilon));
      const auto norms = setBlock(norm);
      for (size_t i = 0; i < rows; i += kBlock<T>)
        storeColumn(roundBlock<Element>(div(loadColumn(column + i), norms)),
                    column + i);
      // Of the zeros behind, a norm of zero made NaNs.
      std::fill(column + rows, column + stride, T(0));
    }
    for (size_t l = k + 1; l < count; ++l) {
      T *later = columns + l * stride;
      const T product =
          sumTerms<T>(rows, [&](size_t i, const Block<T> &sum) HWY_ATTR {
            return add(sum, roundBlock<Element>(mul(loadColumn(column + i),
                                                    loadColumn(later + i))));
          });
      const auto factor = setBlock(roundScalar<Element>(product));
      for (size_t i = 0; i < rows; i += kBlock<T>) {
        const auto part =
            roundBlock<Element>(mul(factor, loadColumn(column + i)));
        storeColumn(roundBlock<Element>(sub(loadColumn(later + i), part)),
                    later + i);
      }
    }
  }
  clearColumns(columns, stride, count, rank);
}

/// Multiplies a column by a power of two, so that squares of its largest
/// element neither overflow nor vanish. Its reflector stays the same.
template <class T>
void rescale(T *column, size_t n) {
  T largest = 0;
  for (size_t i = 0; i < n; ++i)
    largest = std::max(largest, std::abs(column[i]));
  if (largest == 0 || !std::isfinite(largest))
    return;
  const int exponent = std::ilogb(largest);
  for (size_t i = 0; i < n; ++i)
    column[i] = std::ldexp(column[i], -exponent);
}

/// Makes the reflector of a column whose pivot is its first element, as
/// LAPACK's larfg: H = I - tau·v·vᵀ with v₀ = 1; v's other elements replace
/// those of the column. `n` >= 1. Gives tau.
template <class T>
T makeReflector(T *column, size_t n) {
  // Between these bounds squares have lost nothing that matters.
  constexpr T tiny = std::is_same_v<T, float> ? T(1e-30) : T(1e-280);
  constexpr T huge = std::is_same_v<T, float> ? T(1e+30) : T(1e+280);
  T squares = dot(column + 1, column + 1, n - 1);
  if (!(squares >= tiny && squares <= huge && column[0] * column[0] <= huge)) {
    if (std::all_of(column + 1, column + n, [](T x) { return x == 0; }))
      return 0;
    rescale(column, n);
    squares = dot(column + 1, column + 1, n - 1);
  }
  const double pivot = column[0];
  const double norm = std::sqrt(pivot * pivot + static_cast<double>(squares));
  const double beta = -std::copysign(norm, pivot);
  scale(column + 1, static_cast<T>(1 / (pivot - beta)), n - 1);
  return static_cast<T>((beta - pivot) / beta);
}

/// Applies the reflector to another column; both begin at its pivot.
template <class T>
void reflect(T *column, const T *reflector, T tau, size_t n) {
  const T product = tau * (column[0] + dot(column + 1, reflector + 1, n - 1));
  column[0] -= product;
  subtractMultiple(column + 1, product, reflector + 1, n - 1);
}

/// LAPACK's geqr2 and org2r.
template <class T>
void householder(T *columns, size_t rows, size_t rank, T *tau) {
  const size_t stride = packedStride(rows);
  const size_t count = std::min(rows, rank);
  for (size_t k = 0; k < count; ++k) {
    T *reflector = columns + k * stride + k;
    tau[k] = makeReflector(reflector, rows - k);
    if (tau[k] != 0)
      for (size_t l = k + 1; l < count; ++l)
        reflect(columns + l * stride + k, reflector, tau[k], rows - k);
  }
  for (size_t k = count; k-- > 0;) {
    T *reflector = columns + k * stride + k;
    for (size_t l = k + 1; l < count; ++l)
      reflect(columns + l * stride + k, reflector, tau[k], rows - k);
    scale(reflector + 1, -tau[k], rows - k - 1);
    reflector[0] = 1 - tau[k];
    std::fill(columns + k * stride, reflector, T(0));
  }
  clearColumns(columns, stride, count, rank);
}

/// `in` and `out` are of the type that is computed in; `tau` has room for
/// `rank` numbers.
void orthogonalizeKernel(Dtype type, size_t rows, size_t rank, const void *in,
                         void *out, double epsilon, bool unitColumns,
                         void *packed, void *tau) {
  withElement(type, [&](auto element) HWY_ATTR {
    using Element = decltype(element);
    using T = ComputeOf<Element>;
    auto *columns = static_cast<T *>(packed);
    packFactor(static_cast<const T *>(in), rows, rank, columns);
    if constexpr (std::is_same_v<Element, ElementOf<T>>) {
      if (rank > 2)
        householder(columns, rows, rank, static_cast<T *>(tau));
      else
        gramSchmidt<Element>(columns, rows, rank, epsilon, unitColumns);
    } else {
      gramSchmidt<Element>(columns, rows, rank, epsilon, unitColumns);
    }
    unpackFactor(columns, rows, rank, static_cast<T *>(out));
  });
}

} // namespace ddphook::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ddphook::host {

HWY_EXPORT(orthogonalizeKernel);

std::optional<int64_t> lowRankScratchBytes(Dtype type,
                                           const LowRankShape &shape) {
  // A column takes at most 31 numbers more than it has rows, and one for tau;
  // then the wide copy.
  const int64_t rows = std::max(shape.rows, shape.columns);
  constexpr int64_t limit = int64_t(1) << 62;
  int64_t perColumn = 0, numbers = 0, bytes = 0;
  if (__builtin_mul_overflow(rows, 2, &perColumn) ||
      __builtin_add_overflow(perColumn, 64, &perColumn) ||
      __builtin_mul_overflow(perColumn, shape.rank, &numbers) ||
      __builtin_mul_overflow(numbers, type == Dtype::F64 ? 8 : 4, &bytes) ||
      bytes > limit)
    return std::nullopt;
  return bytes;
}

void orthogonalizeFactor(Dtype type, int64_t rows, int64_t rank, const void *in,
                         void *out, double epsilon, void *scratch,
                         bool unitColumns) {
  if (rows == 0 || rank == 0)
    return;
  withComputeType(type, [&](auto zero) {
    using T = decltype(zero);
    const LowRankScratch<T> parts(scratch, rows, rank);
    const T *wideIn = widenFactor(type, in, rows * rank, parts.wide);
    T *wideOut = widenedTarget(type, out, parts.wide);
    // Types that need the wide copy need no tau.
    HWY_DYNAMIC_DISPATCH(orthogonalizeKernel)
    (type, static_cast<size_t>(rows), static_cast<size_t>(rank), wideIn,
     wideOut, epsilon, unitColumns, parts.packed, parts.wide);
    narrowFactor(type, wideOut, out, rows * rank);
  });
}

} // namespace ddphook::host
#endif // HWY_ONCE
