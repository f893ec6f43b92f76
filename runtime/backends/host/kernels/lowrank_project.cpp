// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An element of P is the inner product of a row of M, which is contiguous, and
// a packed column of Q. A panel of columns is summed in registers; if the rank
// takes several panels, the rows are read again.
//
// While Q fits into the first-level cache, one row at a time is best: M is read
// in order, which hardware prefetchers handle, and G and E are added on the
// way. A larger Q must be loaded once for several rows. Reading these together
// means streams that each end after a row, which took twice as long from memory
// as one stream. So some rows of M are computed first, in order, and then read
// together from the second-level cache.
//
// The order of additions: lane l of a block sums the products of columns l, l +
// lanes, …. At rank 1 and 2, where a single sum would wait for its own previous
// addition, four and two blocks alternate. Then blocks are added, then lanes.

#include "lowrank.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lowrank_project.cpp"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "lowrank_scratch.h"

#include "blocks-inl.h"

#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace ddphook::host::HWY_NAMESPACE {

/// Rows of M that are in the caches.
template <class Element>
struct CachedRows {
  using Elem = typename Element::Elem;
  using T = ComputeOf<Element>;

  HWY_INLINE Block<T> whole(size_t i) const {
    return loadBlock<Element>(matrix + i);
  }
  HWY_INLINE Block<T> partial(size_t i, size_t count) const {
    return loadPartialBlock<Element>(matrix + i, count);
  }
  /// Prefetches data read some time after block `j` of row `b` of `kRows`.
  template <size_t kRows>
  HWY_INLINE void fetch(size_t, size_t, size_t) const {}
  /// Returns the rows for reading them again.
  CachedRows again() const { return {matrix}; }

  const Elem *matrix;
};

/// Rows of M that are read from memory.
template <class Element>
struct PlainRows : CachedRows<Element> {
  using CachedRows<Element>::matrix;

  template <size_t kRows>
  HWY_INLINE void fetch(size_t b, size_t j, size_t columns) const {
    if constexpr (kRows == 1)
      prefetchAhead(matrix + j);
    else
      prefetchFrom(matrix + b * columns + j,
                   static_cast<ptrdiff_t>(kRows * columns));
  }
  PlainRows from(size_t i) const { return {{matrix + i}}; }
};

/// Rows of M that are computed and stored as they are read, one at a time.
template <class Element>
struct SummedRows {
  using Elem = typename Element::Elem;
  using T = ComputeOf<Element>;

  HWY_INLINE Block<T> whole(size_t i) const {
    auto x = roundBlock<Element>(
        add(loadBlock<Element>(e + i), loadBlock<Element>(g + i)));
    storeBlock<Element>(x, m + i);
    return x;
  }
  HWY_INLINE Block<T> partial(size_t i, size_t count) const {
    auto x = roundBlock<Element>(add(loadPartialBlock<Element>(e + i, count),
                                     loadPartialBlock<Element>(g + i, count)));
    storePartialBlock<Element>(x, m + i, count);
    return x;
  }
  /// Does nothing: hardware prefetchers handle two arrays.
  template <size_t kRows>
  HWY_INLINE void fetch(size_t, size_t, size_t) const {
    static_assert(kRows == 1);
  }
  SummedRows from(size_t i) const { return {g + i, e + i, m + i}; }
  CachedRows<Element> again() const { return {m}; }

  const Elem *g;
  const Elem *e;
  Elem *m;
};

/// Rows of M that were just computed. Memory would be idle while `kTogether` of
/// them are read, so this prefetches one of the rows of G and E that are added
/// next. Prefetching two was slower.
template <class Element, size_t kTogether>
struct NearRows : CachedRows<Element> {
  using Elem = typename Element::Elem;
  using CachedRows<Element>::matrix;

  template <size_t kRows>
  HWY_INLINE void fetch(size_t b, size_t j, size_t) const {
    if (b > 0)
      return;
    prefetchFrom(g, static_cast<ptrdiff_t>(next + j));
    prefetchFrom(e, static_cast<ptrdiff_t>(next + j));
  }
  /// Prefetches with every panel of columns, which was faster than with one.
  NearRows again() const { return *this; }
  NearRows from(size_t i) const {
    return {{matrix + i}, g, e, next + i / kTogether};
  }

  const Elem *g;
  const Elem *e;
  size_t next;
};

/// Computes `kWidth` columns of P in `kRows` rows.
template <size_t kWidth, size_t kRows, size_t kTurns, class Rows,
          class T = typename Rows::T>
HWY_INLINE void projectPanel(const Rows &rows, size_t columns,
                             const T *HWY_RESTRICT q, size_t stride, T *p,
                             size_t rank) {
  Block<T> sums[kRows][kWidth][kTurns];
  HWY_UNROLL(8)
  for (size_t b = 0; b < kRows; ++b) {
    HWY_UNROLL(8)
    for (size_t k = 0; k < kWidth; ++k) {
      HWY_UNROLL(8)
      for (size_t t = 0; t < kTurns; ++t)
        sums[b][k][t] = setBlock(T(0));
    }
  }
  auto accumulate = [&](const Block<T> *x, size_t j, size_t t) HWY_ATTR {
    HWY_UNROLL(8)
    for (size_t k = 0; k < kWidth; ++k) {
      auto column = loadBlock<ElementOf<T>>(q + k * stride + j);
      HWY_UNROLL(8)
      for (size_t b = 0; b < kRows; ++b)
        sums[b][k][t] = mulAdd(x[b], column, sums[b][k][t]);
    }
  };
  size_t j = 0;
  for (; j + kTurns * kBlock<T> <= columns; j += kTurns * kBlock<T>) {
    HWY_UNROLL(8)
    for (size_t t = 0; t < kTurns; ++t) {
      Block<T> x[kRows];
      HWY_UNROLL(8)
      for (size_t b = 0; b < kRows; ++b) {
        const size_t i = j + t * kBlock<T>;
        rows.template fetch<kRows>(b, i, columns);
        x[b] = rows.whole(b * columns + i);
      }
      accumulate(x, j + t * kBlock<T>, t);
    }
  }
  HWY_UNROLL(8)
  for (size_t t = 0; t < kTurns; ++t) {
    if (j >= columns)
      break;
    const size_t count = columns - j;
    Block<T> x[kRows];
    if (count >= kBlock<T>) {
      HWY_UNROLL(8)
      for (size_t b = 0; b < kRows; ++b)
        x[b] = rows.whole(b * columns + j);
    } else {
      HWY_UNROLL(8)
      for (size_t b = 0; b < kRows; ++b)
        x[b] = rows.partial(b * columns + j, count);
    }
    accumulate(x, j, t);
    j += kBlock<T>;
  }
  HWY_UNROLL(8)
  for (size_t b = 0; b < kRows; ++b) {
    HWY_UNROLL(8)
    for (size_t k = 0; k < kWidth; ++k) {
      HWY_UNROLL(4)
      for (size_t half = kTurns / 2; half > 0; half /= 2) {
        HWY_UNROLL(4)
        for (size_t t = 0; t < half; ++t)
          sums[b][k][t] = add(sums[b][k][t], sums[b][k][t + half]);
      }
      p[b * rank + k] = sumBlock(sums[b][k][0]);
    }
  }
}

/// The maximum number of columns in a panel and the number of rows processed
/// together, as the registers left by the accumulators permit.
constexpr bool kManyRegisters = HWY_ARCH_X86 && HWY_MAX_BYTES == 64;
constexpr size_t kMaxWidth = kManyRegisters ? 8 : 4;
constexpr size_t rowsTogether(size_t width) {
  if (width <= 2 || HWY_MAX_BYTES <= 16)
    return 1;
  return kManyRegisters ? (width <= 4 ? 4 : 3) : (width <= 3 ? 2 : 1);
}
constexpr size_t turnsOf(size_t rank) {
  return rank == 1 ? 4 : rank == 2 ? 2 : 1;
}

/// Process one row at a time while Q is no larger; see above.
constexpr size_t kNearBytes = 16 << 10;

/// Bytes of the rows of M that are computed before they are read together.
constexpr size_t kChunkBytes = 64 << 10;

/// Processes `kRows` rows. A `kRank` of 0 means any rank, in equal panels.
template <size_t kRank, size_t kRows, class Rows, class T = typename Rows::T>
HWY_INLINE void projectGroup(const Rows &rows, size_t columns, const T *q,
                             size_t stride, T *p, size_t rank) {
  if constexpr (kRank > 0) {
    projectPanel<kRank, kRows, turnsOf(kRank)>(rows, columns, q, stride, p,
                                               kRank);
  } else {
    const size_t panels = (rank + kMaxWidth - 1) / kMaxWidth;
    size_t k = 0;
    for (size_t panel = 0; panel < panels; ++panel) {
      const size_t width = (rank - k) / (panels - panel);
      withConstant<kMaxWidth>(width, [&](auto constant) HWY_ATTR {
        constexpr size_t kWidth = constant.value;
        // With several panels, none is this narrow.
        if constexpr (kWidth > 1) {
          if (panel == 0)
            projectPanel<kWidth, kRows, 1>(rows, columns, q, stride, p, rank);
          else
            projectPanel<kWidth, kRows, 1>(rows.again(), columns,
                                           q + k * stride, stride, p + k, rank);
        }
      });
      k += width;
    }
  }
}

/// Processes `kRows` rows at a time and the remaining rows one at a time.
template <size_t kRank, size_t kRows, class Rows, class T = typename Rows::T>
void projectRows(const Rows &rows, size_t count, size_t columns, const T *q,
                 size_t stride, T *p, size_t rank) {
  size_t i = 0;
  for (; i + kRows <= count; i += kRows)
    projectGroup<kRank, kRows>(rows.from(i * columns), columns, q, stride,
                               p + i * rank, rank);
  if constexpr (kRows > 1)
    projectRows<kRank, 1>(rows.from(i * columns), count - i, columns, q, stride,
                          p + i * rank, rank);
}

/// Does the same for rows that are computed first, some at a time.
template <size_t kRank, size_t kRows, class Element, class T>
void projectSums(const SummedRows<Element> &all, size_t count, size_t columns,
                 const T *q, size_t stride, T *p, size_t rank) {
  const size_t rowBytes =
      std::max<size_t>(columns, 1) * sizeof(typename Element::Elem);
  const size_t some =
      kRows * std::max<size_t>(kChunkBytes / (kRows * rowBytes), 1);
  for (size_t i = 0; i < count; i += some) {
    const size_t here = std::min(some, count - i);
    const SummedRows<Element> rows = all.from(i * columns);
    addArrays(rows.m, rows.g, rows.e, Element::type,
              static_cast<int64_t>(here * columns));
    const NearRows<Element, kRows> near{
        {rows.m}, rows.g, rows.e, here * columns};
    projectRows<kRank, kRows>(near, here, columns, q, stride, p + i * rank,
                              rank);
  }
}

/// Calls fn with the rank as a constant, or 0 if it takes several panels.
template <class Fn>
HWY_INLINE void withRank(size_t rank, const Fn &fn) {
  if (rank > kMaxWidth)
    fn(std::integral_constant<size_t, 0>());
  else
    withConstant<kMaxWidth>(rank, fn);
}

/// Projects M; `q` and `p` are in the computation type.
void projectKernel(Dtype type, const LowRankShape &shape, const void *g,
                   const void *e, const void *q, void *m, void *p,
                   void *packed) {
  const auto rows = static_cast<size_t>(shape.rows);
  const auto columns = static_cast<size_t>(shape.columns);
  const auto rank = static_cast<size_t>(shape.rank);
  const size_t stride = packedStride(columns);
  withElement(type, [&](auto element) HWY_ATTR {
    using Element = decltype(element);
    using Elem = typename Element::Elem;
    using T = ComputeOf<Element>;
    auto *const factor = static_cast<T *>(packed);
    auto *const sums = static_cast<T *>(p);
    packFactor(static_cast<const T *>(q), columns, rank, factor);
    const PlainRows<Element> plain{{static_cast<const Elem *>(g)}};
    const SummedRows<Element> summed{static_cast<const Elem *>(g),
                                     static_cast<const Elem *>(e),
                                     static_cast<Elem *>(m)};
    // With one or two columns there are few loads to share.
    const bool alone = rank <= 2 || columns * rank * sizeof(T) <= kNearBytes;
    withRank(rank, [&](auto constant) HWY_ATTR {
      constexpr size_t kRank = constant.value;
      constexpr size_t kRows = rowsTogether(kRank == 0 ? kMaxWidth : kRank);
      auto project = [&](auto together, const auto &all) HWY_ATTR {
        projectRows<kRank, together.value>(all, rows, columns, factor, stride,
                                           sums, rank);
      };
      const std::integral_constant<size_t, 1> one;
      if (alone)
        return e ? project(one, summed) : project(one, plain);
      if (!e)
        return project(std::integral_constant<size_t, kRows>(), plain);
      projectSums<kRank, kRows>(summed, rows, columns, factor, stride, sums,
                                rank);
    });
  });
}

} // namespace ddphook::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ddphook::host {

HWY_EXPORT(projectKernel);

void projectMatrix(Dtype type, const LowRankShape &shape, const void *g,
                   const void *e, const void *q, void *m, void *p,
                   void *scratch) {
  if (shape.rank == 0) {
    if (e)
      addArrays(m, g, e, type, shape.rows * shape.columns);
    return;
  }
  const LowRankScratch parts(type, scratch, shape);
  const void *wideQ =
      widenFactor(type, q, shape.columns * shape.rank, parts.wide);
  void *wideP = widenedTarget(type, p, parts.wide);
  HWY_DYNAMIC_DISPATCH(projectKernel)
  (type, shape, g, e, wideQ, m, wideP, parts.packed);
  narrowFactor(type, wideP, p, shape.rows * shape.rank);
}

} // namespace ddphook::host
#endif // HWY_ONCE
