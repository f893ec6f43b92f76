// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Adds rows of M, each multiplied by an element of P, to the packed columns of
// Q: a few rows at a time, so that Q is loaded and stored once for all of them.
//
// The order of additions: groups of rows from the last to the first, the rows
// of a group from the first to the last.

#include "lowrank.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lowrank_transposed.cpp"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "lowrank_scratch.h"

#include "blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ddphook::host::HWY_NAMESPACE {

/// The number of rows in a group, which determines the order of additions.
constexpr size_t kGroupRows = 48;

/// The columns of Q in a panel, and the blocks of its rows processed together:
/// the maximum for which the accumulators leave registers.
constexpr bool kManyRegisters = HWY_ARCH_X86 && HWY_MAX_BYTES == 64;
constexpr size_t kMaxWidth = kManyRegisters ? 8 : HWY_MAX_BYTES > 16 ? 6 : 4;
constexpr size_t blocksTogether(size_t width) {
  if (!kManyRegisters)
    return 1;
  return width <= 2 ? 8 / width : width <= 4 ? 4 : width <= 6 ? 3 : 2;
}
/// The number of rows added before sums are stored.
constexpr size_t kRowsTogether = 8;

/// Adds `rows` rows of M to `kBlocks` blocks of `kWidth` columns of Q. The last
/// block has only `count` elements if `kPartial`.
template <class Element, size_t kWidth, size_t kBlocks, bool kPartial,
          class T = ComputeOf<Element>>
HWY_INLINE void addToTile(const typename Element::Elem *HWY_RESTRICT matrix,
                          size_t columns, size_t rows, size_t count,
                          const T *HWY_RESTRICT p, size_t rank,
                          T *HWY_RESTRICT q, size_t stride) {
  Block<T> sums[kWidth][kBlocks];
  HWY_UNROLL(8)
  for (size_t k = 0; k < kWidth; ++k) {
    HWY_UNROLL(8)
    for (size_t c = 0; c < kBlocks; ++c)
      sums[k][c] = loadBlock<ElementOf<T>>(q + k * stride + c * kBlock<T>);
  }
  for (size_t b = 0; b < rows; ++b) {
    Block<T> x[kBlocks];
    HWY_UNROLL(8)
    for (size_t c = 0; c < kBlocks; ++c) {
      if constexpr (kPartial)
        x[c] = loadPartialBlock<Element>(matrix + b * columns, count);
      else
        x[c] = loadBlock<Element>(matrix + b * columns + c * kBlock<T>);
      // Hardware prefetchers do not recognize several rows at a time.
      prefetchFrom(matrix + b * columns + c * kBlock<T>,
                   -static_cast<ptrdiff_t>(kGroupRows * columns));
    }
    HWY_UNROLL(8)
    for (size_t k = 0; k < kWidth; ++k) {
      const auto factor = setBlock(p[b * rank + k]);
      HWY_UNROLL(8)
      for (size_t c = 0; c < kBlocks; ++c)
        sums[k][c] = mulAdd(x[c], factor, sums[k][c]);
    }
  }
  HWY_UNROLL(8)
  for (size_t k = 0; k < kWidth; ++k) {
    HWY_UNROLL(8)
    for (size_t c = 0; c < kBlocks; ++c)
      storeBlock<ElementOf<T>>(sums[k][c], q + k * stride + c * kBlock<T>);
  }
}

/// Adds a group of rows to a panel of Q's columns.
template <class Element, size_t kWidth, class T = ComputeOf<Element>>
void addGroup(const typename Element::Elem *matrix, size_t rows, size_t columns,
              const T *p, size_t rank, T *q, size_t stride) {
  constexpr size_t kBlocks = blocksTogether(kWidth);
  // The largest number of columns at a time for which Q stays in the L1 cache.
  constexpr size_t kColumns =
      2048 / (kWidth > 2 ? kWidth : 2) / kBlock<T> * kBlock<T>;
  for (size_t begin = 0; begin < columns; begin += kColumns) {
    const size_t end = std::min(columns, begin + kColumns);
    for (size_t i = 0; i < rows; i += kRowsTogether) {
      const size_t some = std::min(rows - i, kRowsTogether);
      const auto *m = matrix + i * columns;
      const T *factors = p + i * rank;
      size_t j = begin;
      for (; j + kBlocks * kBlock<T> <= end; j += kBlocks * kBlock<T>)
        addToTile<Element, kWidth, kBlocks, false>(
            m + j, columns, some, 0, factors, rank, q + j, stride);
      for (; j + kBlock<T> <= end; j += kBlock<T>)
        addToTile<Element, kWidth, 1, false>(m + j, columns, some, 0, factors,
                                             rank, q + j, stride);
      if (j < end)
        addToTile<Element, kWidth, 1, true>(m + j, columns, some, end - j,
                                            factors, rank, q + j, stride);
    }
  }
}

/// Computes Q = Mᵀ·P; `p` and `q` are in the computation type.
void transposedKernel(Dtype type, const LowRankShape &shape, const void *matrix,
                      const void *p, void *q, void *packed) {
  const auto rows = static_cast<size_t>(shape.rows);
  const auto columns = static_cast<size_t>(shape.columns);
  const auto rank = static_cast<size_t>(shape.rank);
  const size_t stride = packedStride(columns);
  withElement(type, [&](auto element) HWY_ATTR {
    using Element = decltype(element);
    using T = ComputeOf<Element>;
    auto *sums = static_cast<T *>(packed);
    std::fill(sums, sums + rank * stride, T(0));
    const auto *elements = static_cast<const typename Element::Elem *>(matrix);
    const auto *factors = static_cast<const T *>(p);
    const size_t panels = (rank + kMaxWidth - 1) / kMaxWidth;
    for (size_t groups = (rows + kGroupRows - 1) / kGroupRows; groups > 0;
         --groups) {
      const size_t first = (groups - 1) * kGroupRows;
      const size_t last = std::min(rows, first + kGroupRows);
      size_t k = 0;
      for (size_t panel = 0; panel < panels; ++panel) {
        const size_t width = (rank - k) / (panels - panel);
        withConstant<kMaxWidth>(width, [&](auto constant) HWY_ATTR {
          addGroup<Element, constant.value>(
              elements + first * columns, last - first, columns,
              factors + first * rank + k, rank, sums + k * stride, stride);
        });
        k += width;
      }
    }
    unpackFactor(sums, columns, rank, static_cast<T *>(q));
  });
}

} // namespace ddphook::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ddphook::host {

HWY_EXPORT(transposedKernel);

void multiplyTransposed(Dtype type, const LowRankShape &shape,
                        const void *matrix, const void *p, void *q,
                        void *scratch) {
  const LowRankScratch parts(type, scratch, shape);
  const void *wideP = widenFactor(type, p, shape.rows * shape.rank, parts.wide);
  void *wideQ = widenedTarget(type, q, parts.wide);
  HWY_DYNAMIC_DISPATCH(transposedKernel)
  (type, shape, matrix, wideP, wideQ, parts.packed);
  narrowFactor(type, wideQ, q, shape.columns * shape.rank);
}

} // namespace ddphook::host
#endif // HWY_ONCE
