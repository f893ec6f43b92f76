//===- lowrank_project.cpp - M = G + E and P = M·Q ------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An element of P is the inner product of a row of M, which is contiguous, and
// a packed column of Q. A few rows and several columns are worked on together,
// so that what is loaded is used more than once; when the rank is larger than
// one such panel of columns, the row is read again from the nearest cache.
//
// The order of additions: lane l of a block sums the products of columns
// l, l + lanes, …; at rank 1 and 2, where one sum would wait for its own last
// addition, four and two blocks take turns. Then blocks are added, then lanes.
//
//===----------------------------------------------------------------------===//
#include "lowrank.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lowrank_project.cpp"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "lowrank_scratch.h"

#include "blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ddphook::host::HWY_NAMESPACE {

/// Rows of M as they are in memory.
template <class Element>
struct PlainRows {
  using Elem = typename Element::Elem;
  using T = ComputeOf<Element>;

  HWY_INLINE Block<T> whole(size_t i) const {
    return loadBlock<Element>(matrix + i);
  }
  HWY_INLINE Block<T> partial(size_t i, size_t count) const {
    return loadPartialBlock<Element>(matrix + i, count);
  }
  HWY_INLINE void prefetch(size_t i, size_t ahead) const {
    prefetchFrom(matrix + i, static_cast<ptrdiff_t>(ahead));
  }
  PlainRows from(size_t i) const { return {matrix + i}; }

  const Elem *matrix;
};

/// Rows of M that are computed and stored when they are first read.
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
  HWY_INLINE void prefetch(size_t i, size_t ahead) const {
    prefetchFrom(g + i, static_cast<ptrdiff_t>(ahead));
    prefetchFrom(e + i, static_cast<ptrdiff_t>(ahead));
  }
  SummedRows from(size_t i) const { return {g + i, e + i, m + i}; }

  const Elem *g;
  const Elem *e;
  Elem *m;
};

/// `kWidth` columns of P in `kRows` rows.
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
        const size_t i = b * columns + j + t * kBlock<T>;
        // Several rows at a time are no pattern that processors fetch ahead in.
        if constexpr (kRows > 1)
          rows.prefetch(i, kRows * columns);
        x[b] = rows.whole(i);
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

/// Columns that one panel has at most, and rows that are worked on together;
/// what the accumulators leave room for in the registers.
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

/// As long as Q has no more bytes, and stays in the first-level cache, one row
/// at a time is faster: then M is read in its order, in which processors fetch
/// ahead by themselves. With a larger Q, several rows have to share its loads.
constexpr size_t kNearBytes = 16 << 10;

/// A rank that is one panel.
template <size_t kRank, class Rows, class T = typename Rows::T>
void projectNarrow(const Rows &rows, size_t count, size_t columns, const T *q,
                   size_t stride, T *p) {
  constexpr size_t kRows = rowsTogether(kRank), kTurns = turnsOf(kRank);
  size_t i = 0;
  if (columns * kRank * sizeof(T) > kNearBytes)
    for (; i + kRows <= count; i += kRows)
      projectPanel<kRank, kRows, kTurns>(rows.from(i * columns), columns, q,
                                         stride, p + i * kRank, kRank);
  for (; i < count; ++i)
    projectPanel<kRank, 1, kTurns>(rows.from(i * columns), columns, q, stride,
                                   p + i * kRank, kRank);
}

/// Several panels of about the same width. The first reads `first`, which
/// completes what `again` reads.
template <size_t kRows, class First, class Again, class T = typename First::T>
HWY_INLINE void projectPanels(const First &first, const Again &again,
                              size_t columns, const T *q, size_t stride, T *p,
                              size_t rank) {
  const size_t panels = (rank + kMaxWidth - 1) / kMaxWidth;
  size_t k = 0;
  for (size_t panel = 0; panel < panels; ++panel) {
    const size_t width = (rank - k) / (panels - panel);
    withConstant<kMaxWidth>(width, [&](auto constant) HWY_ATTR {
      constexpr size_t kWidth = constant.value;
      // No rank of several panels has one that narrow.
      if constexpr (kWidth > 1) {
        if (panel == 0)
          projectPanel<kWidth, kRows, 1>(first, columns, q, stride, p, rank);
        else
          projectPanel<kWidth, kRows, 1>(again, columns, q + k * stride, stride,
                                         p + k, rank);
      }
    });
    k += width;
  }
}

template <class First, class Again, class T = typename First::T>
void projectWide(const First &first, const Again &again, size_t count,
                 size_t columns, const T *q, size_t stride, T *p, size_t rank) {
  constexpr size_t kRows = rowsTogether(kMaxWidth);
  size_t i = 0;
  for (; i + kRows <= count; i += kRows)
    projectPanels<kRows>(first.from(i * columns), again.from(i * columns),
                         columns, q, stride, p + i * rank, rank);
  for (; i < count; ++i)
    projectPanels<1>(first.from(i * columns), again.from(i * columns), columns,
                     q, stride, p + i * rank, rank);
}

template <class First, class Again, class T = typename First::T>
void projectAll(const First &first, const Again &again,
                const LowRankShape &shape, const T *q, T *p) {
  const auto rows = static_cast<size_t>(shape.rows);
  const auto columns = static_cast<size_t>(shape.columns);
  const auto rank = static_cast<size_t>(shape.rank);
  const size_t stride = packedStride(columns);
  if (rank > kMaxWidth)
    return projectWide(first, again, rows, columns, q, stride, p, rank);
  withConstant<kMaxWidth>(rank, [&](auto constant) HWY_ATTR {
    projectNarrow<constant.value>(first, rows, columns, q, stride, p);
  });
}

/// `q` and `p` are of the type that is computed in.
void projectKernel(Dtype type, const LowRankShape &shape, const void *g,
                   const void *e, const void *q, void *m, void *p,
                   void *packed) {
  withElement(type, [&](auto element) HWY_ATTR {
    using Element = decltype(element);
    using Elem = typename Element::Elem;
    using T = ComputeOf<Element>;
    auto *columns = static_cast<T *>(packed);
    packFactor(static_cast<const T *>(q), static_cast<size_t>(shape.columns),
               static_cast<size_t>(shape.rank), columns);
    const PlainRows<Element> plain{static_cast<const Elem *>(e ? m : g)};
    if (!e)
      return projectAll(plain, plain, shape, columns, static_cast<T *>(p));
    const SummedRows<Element> summed{static_cast<const Elem *>(g),
                                     static_cast<const Elem *>(e),
                                     static_cast<Elem *>(m)};
    projectAll(summed, plain, shape, columns, static_cast<T *>(p));
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
  withComputeType(type, [&](auto zero) {
    using T = decltype(zero);
    const LowRankScratch<T> parts(scratch, shape);
    const T *wideQ =
        widenFactor(type, q, shape.columns * shape.rank, parts.wide);
    T *wideP = widenedTarget(type, p, parts.wide);
    HWY_DYNAMIC_DISPATCH(projectKernel)
    (type, shape, g, e, wideQ, m, wideP, parts.packed);
    narrowFactor(type, wideP, p, shape.rows * shape.rank);
  });
}

} // namespace ddphook::host
#endif // HWY_ONCE
