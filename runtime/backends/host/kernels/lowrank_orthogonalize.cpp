// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Modified Gram-Schmidt and Householder QR on packed columns. Loops run to the
// end of the last block: zeros follow every column, and stay zeros.

#include "lowrank.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lowrank_orthogonalize.cpp"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "lowrank_scratch.h"

#include "blocks-inl.h"

#include "ddphook/runtime/compiled.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

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

/// Returns the sum of term(i) over the blocks at i = 0, block, … < n.
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

/// Computes a -= factor * b.
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

/// Clears the columns for which no direction is left.
template <class T>
void clearColumns(T *columns, size_t stride, size_t first, size_t rank) {
  for (size_t k = first; k < rank; ++k)
    std::fill(columns + k * stride, columns + (k + 1) * stride, T(0));
}

/// Replaces column k by a unit vector minus its projections on the columns
/// before it, which are orthonormal, normalized. Picks the largest remainder.
template <class Element, class T>
void makeUnitColumn(T *columns, size_t stride, size_t rows, size_t k) {
  // The part of unit vector i in the span is the sum of squares of row i.
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

/// The fraction of a column's norm, half of the digits of `Element`: if the
/// projections leave no more, the column is mostly rounding errors.
template <class Element, class T = ComputeOf<Element>>
T dependentPart() {
  T part = 1;
  while (roundScalar<Element>(1 + part * part) != 1)
    part /= 2;
  return part;
}

/// Orthonormalizes `rank` columns; `least` has space for `rank` numbers.
template <class Element, class T = ComputeOf<Element>>
void gramSchmidt(T *columns, size_t rows, size_t rank, double epsilon,
                 int32_t replaced, T *least) {
  const size_t stride = packedStride(rows);
  const size_t count = std::min(rows, rank);
  const bool areIndependent = (replaced & DDPHOOK_INDEPENDENT_COLUMNS) != 0;
  auto getNorm = [&](const T *column) HWY_ATTR {
    return roundScalar<Element>(std::sqrt(dot(column, column, rows)));
  };
  if (areIndependent) {
    const T part = dependentPart<Element>();
    for (size_t k = 0; k < count; ++k)
      least[k] = part * getNorm(columns + k * stride);
  }
  for (size_t k = 0; k < count; ++k) {
    T *column = columns + k * stride;
    const T norm = getNorm(column);
    T divisor = norm;
    if (epsilon != 0)
      divisor = roundScalar<Element>(norm + static_cast<T>(epsilon));
    if ((areIndependent && norm <= least[k] && std::isfinite(least[k])) ||
        ((replaced & DDPHOOK_UNIT_COLUMNS) && divisor == 0)) {
      makeUnitColumn<Element>(columns, stride, rows, k);
    } else {
      const auto divisors = setBlock(divisor);
      for (size_t i = 0; i < rows; i += kBlock<T>)
        storeColumn(roundBlock<Element>(div(loadColumn(column + i), divisors)),
                    column + i);
      // The division by a norm of zero turned the padding into NaNs.
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

/// Returns the first element of the block that contains element k.
template <class T>
constexpr size_t blockOf(size_t k) {
  return k / kBlock<T> * kBlock<T>;
}

/// Scales a column by a power of two, so that the square of its largest element
/// neither overflows nor vanishes. Its reflector stays the same.
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

/// Computes the reflector of a column with its pivot at `k`, as LAPACK's larfg:
/// H = I - tau·v·vᵀ. All of v replaces the column, with zeros before the pivot
/// and 1 at it, so that loops may start at a block. Returns tau.
template <class T>
T makeReflector(T *column, size_t k, size_t rows) {
  // Between these bounds squares lose nothing that matters.
  constexpr T tiny = std::is_same_v<T, float> ? T(1e-30) : T(1e-280);
  constexpr T huge = std::is_same_v<T, float> ? T(1e+30) : T(1e+280);
  const size_t begin = blockOf<T>(k);
  std::fill(column + begin, column + k, T(0));
  auto sumBelow = [&]() HWY_ATTR {
    const T pivot = std::exchange(column[k], T(0));
    const T squares = dot(column + begin, column + begin, rows - begin);
    column[k] = pivot;
    return squares;
  };
  T squares = sumBelow(), tau = 0;
  bool isZero = false;
  if (!(squares >= tiny && squares <= huge && column[k] * column[k] <= huge)) {
    isZero =
        std::all_of(column + k + 1, column + rows, [](T x) { return x == 0; });
    if (!isZero) {
      rescale(column + k, rows - k);
      squares = sumBelow();
    }
  }
  if (!isZero) {
    const double pivot = column[k];
    const double norm = std::sqrt(pivot * pivot + static_cast<double>(squares));
    // Ignore the sign of zero: a zero in a product has no guaranteed sign.
    const double beta = pivot < 0 ? norm : -norm;
    tau = static_cast<T>((beta - pivot) / beta);
    scale(column + begin, static_cast<T>(1 / (pivot - beta)), rows - begin);
  }
  column[k] = 1;
  return tau;
}

/// Applies the reflector to `kCount` columns that are `stride` apart; all start
/// at the block of its pivot. The order of additions is that of dot().
template <size_t kCount, class T>
void reflectTogether(T *columns, size_t stride, const T *reflector, T tau,
                     size_t n) {
  constexpr size_t step = kBlock<T>;
  Block<T> sums[kCount][4];
  HWY_UNROLL(4)
  for (size_t c = 0; c < kCount; ++c) {
    HWY_UNROLL(4)
    for (size_t t = 0; t < 4; ++t)
      sums[c][t] = setBlock(T(0));
  }
  for (size_t i = 0; i < n; i += 4 * step) {
    HWY_UNROLL(4)
    for (size_t t = 0; t < 4; ++t) {
      if (i + t * step >= n)
        break;
      const auto block = loadColumn(reflector + i + t * step);
      HWY_UNROLL(4)
      for (size_t c = 0; c < kCount; ++c)
        sums[c][t] = mulAdd(loadColumn(columns + c * stride + i + t * step),
                            block, sums[c][t]);
    }
  }
  Block<T> negative[kCount];
  HWY_UNROLL(4)
  for (size_t c = 0; c < kCount; ++c) {
    const T sum =
        sumBlock(add(add(sums[c][0], sums[c][1]), add(sums[c][2], sums[c][3])));
    negative[c] = setBlock(-tau * sum);
  }
  for (size_t i = 0; i < n; i += step) {
    const auto block = loadColumn(reflector + i);
    HWY_UNROLL(4)
    for (size_t c = 0; c < kCount; ++c) {
      T *place = columns + c * stride + i;
      storeColumn(mulAdd(negative[c], block, loadColumn(place)), place);
    }
  }
}

/// Applies the reflector to `count` columns.
template <class T>
void reflect(T *columns, size_t stride, size_t count, const T *reflector, T tau,
             size_t n) {
  constexpr size_t together = HWY_ARCH_X86 && HWY_MAX_BYTES == 64 ? 4 : 1;
  for (; count >= together; count -= together, columns += together * stride)
    reflectTogether<together>(columns, stride, reflector, tau, n);
  for (; count > 0; --count, columns += stride)
    reflectTogether<1>(columns, stride, reflector, tau, n);
}

/// Implements LAPACK's geqr2 and org2r.
template <class T>
void householder(T *columns, size_t rows, size_t rank, T *tau) {
  const size_t stride = packedStride(rows);
  const size_t count = std::min(rows, rank);
  // Applies reflector k, from its pivot's block on, to the columns after it.
  auto reflectLater = [&](size_t k) HWY_ATTR {
    const size_t begin = blockOf<T>(k);
    T *reflector = columns + k * stride + begin;
    reflect(reflector + stride, stride, count - k - 1, reflector, tau[k],
            rows - begin);
  };
  for (size_t k = 0; k < count; ++k) {
    tau[k] = makeReflector(columns + k * stride, k, rows);
    if (tau[k] != 0)
      reflectLater(k);
  }
  for (size_t k = count; k-- > 0;) {
    reflectLater(k);
    T *column = columns + k * stride;
    const size_t begin = blockOf<T>(k);
    scale(column + begin, -tau[k], rows - begin);
    std::fill(column, column + k, T(0));
    column[k] = 1 - tau[k];
  }
  clearColumns(columns, stride, count, rank);
}

/// Orthonormalizes `in` into `out`, both in the computation type; `scalars` has
/// space for `rank` numbers and may be `in`.
void orthogonalizeKernel(Dtype type, size_t rows, size_t rank, const void *in,
                         void *out, double epsilon, int32_t replaced,
                         void *packed, void *scalars) {
  withElement(type, [&](auto element) HWY_ATTR {
    using Element = decltype(element);
    using T = ComputeOf<Element>;
    auto *columns = static_cast<T *>(packed);
    packFactor(static_cast<const T *>(in), rows, rank, columns);
    if constexpr (std::is_same_v<Element, ElementOf<T>>) {
      if (rank > 2)
        householder(columns, rows, rank, static_cast<T *>(scalars));
      else
        gramSchmidt<Element>(columns, rows, rank, epsilon, replaced,
                             static_cast<T *>(scalars));
    } else {
      gramSchmidt<Element>(columns, rows, rank, epsilon, replaced,
                           static_cast<T *>(scalars));
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
  // A column takes 31 numbers more than rows, one for tau, then the wide copy.
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
                         int32_t replaced) {
  if (rows == 0 || rank == 0)
    return;
  const LowRankScratch parts(type, scratch, rows, rank);
  const void *wideIn = widenFactor(type, in, rows * rank, parts.wide);
  void *wideOut = widenedTarget(type, out, parts.wide);
  HWY_DYNAMIC_DISPATCH(orthogonalizeKernel)
  (type, static_cast<size_t>(rows), static_cast<size_t>(rank), wideIn, wideOut,
   epsilon, replaced, parts.packed, parts.wide);
  narrowFactor(type, wideOut, out, rows * rank);
}

} // namespace ddphook::host
#endif // HWY_ONCE
