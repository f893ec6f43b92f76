//===- lowrank_transposed.cpp - Q = Mᵀ·P ----------------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rows of M, each times a number of P, are added to the packed columns of Q: a
// few rows at a time, so that Q is loaded and stored once for all of them.
//
// The order of additions: groups of rows from the last to the first, the rows
// of a group from the first to the last.
//
//===----------------------------------------------------------------------===//
#include "lowrank.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lowrank_transposed.cpp"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "lowrank_scratch.h"

#include "blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ddphook::host::HWY_NAMESPACE {

/// Rows of a group; a part of the order of additions.
constexpr size_t kGroupRows = 48;

constexpr size_t kMaxWidth = 8;
constexpr size_t rowsTogether(size_t width) {
  if (HWY_MAX_BYTES <= 16)
    return 1;
  return width <= 2 ? 8 : width <= 4 ? 4 : 2;
}

/// Adds `kRows` rows, from column `begin` to `end`, to `kWidth` columns of Q.
template <class Element, size_t kWidth, size_t kRows,
          class T = ComputeOf<Element>>
HWY_INLINE void addRows(const typename Element::Elem *matrix, size_t columns,
                        size_t begin, size_t end, const T *p, size_t rank,
                        T *HWY_RESTRICT q, size_t stride) {
  Block<T> factors[kRows][kWidth];
  HWY_UNROLL(8)
  for (size_t b = 0; b < kRows; ++b) {
    HWY_UNROLL(8)
    for (size_t k = 0; k < kWidth; ++k)
      factors[b][k] = setBlock(p[b * rank + k]);
  }
  auto accumulate = [&](const Block<T> *x, size_t j) HWY_ATTR {
    HWY_UNROLL(8)
    for (size_t k = 0; k < kWidth; ++k) {
      auto sum = loadBlock<ElementOf<T>>(q + k * stride + j);
      HWY_UNROLL(8)
      for (size_t b = 0; b < kRows; ++b)
        sum = mulAdd(x[b], factors[b][k], sum);
      storeBlock<ElementOf<T>>(sum, q + k * stride + j);
    }
  };
  Block<T> x[kRows];
  size_t j = begin;
  for (; j + kBlock<T> <= end; j += kBlock<T>) {
    HWY_UNROLL(8)
    for (size_t b = 0; b < kRows; ++b)
      x[b] = loadBlock<Element>(matrix + b * columns + j);
    accumulate(x, j);
  }
  if (j < end) {
    HWY_UNROLL(8)
    for (size_t b = 0; b < kRows; ++b)
      x[b] = loadPartialBlock<Element>(matrix + b * columns + j, end - j);
    accumulate(x, j);
  }
}

/// One panel of Q's columns, whole.
template <class Element, size_t kWidth, class T = ComputeOf<Element>>
void multiplyPanel(const typename Element::Elem *matrix, size_t rows,
                   size_t columns, const T *p, size_t rank, T *q,
                   size_t stride) {
  constexpr size_t kRows = rowsTogether(kWidth);
  // The largest number of columns at a time for which Q stays in the L1 cache.
  constexpr size_t kColumns =
      2048 / (kWidth > 2 ? kWidth : 2) / kBlock<T> * kBlock<T>;
  for (size_t groups = (rows + kGroupRows - 1) / kGroupRows; groups > 0;
       --groups) {
    const size_t first = (groups - 1) * kGroupRows;
    const size_t last = std::min(rows, first + kGroupRows);
    for (size_t begin = 0; begin < columns; begin += kColumns) {
      const size_t end = std::min(columns, begin + kColumns);
      size_t i = first;
      for (; i + kRows <= last; i += kRows)
        addRows<Element, kWidth, kRows>(matrix + i * columns, columns, begin,
                                        end, p + i * rank, rank, q, stride);
      for (; i < last; ++i)
        addRows<Element, kWidth, 1>(matrix + i * columns, columns, begin, end,
                                    p + i * rank, rank, q, stride);
    }
  }
}

/// `p` and `q` are of the type that is computed in.
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
    const size_t panels = (rank + kMaxWidth - 1) / kMaxWidth;
    size_t k = 0;
    for (size_t panel = 0; panel < panels; ++panel) {
      const size_t width = (rank - k) / (panels - panel);
      withConstant<kMaxWidth>(width, [&](auto constant) HWY_ATTR {
        multiplyPanel<Element, constant.value>(
            static_cast<const typename Element::Elem *>(matrix), rows, columns,
            static_cast<const T *>(p) + k, rank, sums + k * stride, stride);
      });
      k += width;
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
  withComputeType(type, [&](auto zero) {
    using T = decltype(zero);
    const LowRankScratch<T> parts(scratch, shape);
    const T *wideP = widenFactor(type, p, shape.rows * shape.rank, parts.wide);
    T *wideQ = widenedTarget(type, q, parts.wide);
    HWY_DYNAMIC_DISPATCH(transposedKernel)
    (type, shape, matrix, wideP, wideQ, parts.packed);
    narrowFactor(type, wideQ, q, shape.columns * shape.rank);
  });
}

} // namespace ddphook::host
#endif // HWY_ONCE
