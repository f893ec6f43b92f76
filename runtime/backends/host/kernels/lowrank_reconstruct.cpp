// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tiles of a few rows and blocks of columns are summed over the rank in
// registers and then written, together with the error if there is one.
//
// The order of additions is from the first column of the factors to the last.

#include "lowrank.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lowrank_reconstruct.cpp"
#include "hwy/foreach_target.h"

#include "hwy/cache_control.h"
#include "hwy/highway.h"

#include "lowrank_scratch.h"

#include "blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ddphook::host::HWY_NAMESPACE {

/// The error that is written next to the product.
enum class ErrorKind { None, Difference, DifferenceToQuotient };

/// The destination of blocks of the product.
template <class Element, ErrorKind kError, bool kStream>
struct Target {
  using Elem = typename Element::Elem;
  using T = ComputeOf<Element>;

  HWY_INLINE void whole(const Block<T> &product, size_t i) const {
    const auto rounded = roundBlock<Element>(product);
    if constexpr (kError != ErrorKind::None)
      storeBlock<Element>(error(loadBlock<Element>(m + i), rounded), err + i);
    storeBlock<Element, kStream>(rounded, out + i);
  }
  HWY_INLINE void partial(const Block<T> &product, size_t i,
                          size_t count) const {
    const auto rounded = roundBlock<Element>(product);
    if constexpr (kError != ErrorKind::None)
      storePartialBlock<Element>(
          error(loadPartialBlock<Element>(m + i, count), rounded), err + i,
          count);
    storePartialBlock<Element>(rounded, out + i, count);
  }
  HWY_INLINE Block<T> error(const Block<T> &x, const Block<T> &product) const {
    if constexpr (kError == ErrorKind::DifferenceToQuotient)
      return sub(x, roundBlock<Element>(div(product, setBlock(divisor))));
    else
      return sub(x, product);
  }
  Target from(size_t i) const {
    return kError == ErrorKind::None
               ? Target{nullptr, out + i, nullptr, divisor}
               : Target{m + i, out + i, err + i, divisor};
  }

  const Elem *m;
  Elem *out;
  Elem *err;
  T divisor;
};

/// Small vectors are not worth large tiles and several copies of the code.
constexpr bool kLarge = HWY_MAX_BYTES > 16;

/// The rows processed together: eight keep memory busy with loads of M.
constexpr size_t rowsTogether(size_t rank) {
  if (rank == 1 || rank == 2 || !kLarge)
    return 1;
  return HWY_ARCH_X86 && HWY_MAX_BYTES == 64 ? 8 : 4;
}

/// `kRows` rows and `kBlocks` blocks of columns; a `kRank` of 0 means any rank.
template <size_t kRank, size_t kRows, size_t kBlocks, class T>
struct Tile {
  Block<T> products[kRows][kBlocks];

  HWY_INLINE Tile(const T *p, size_t rank, const T *q, size_t stride) {
    addColumn<true>(p, rank, q);
    if constexpr (kRank == 0) {
      for (size_t k = 1; k < rank; ++k)
        addColumn<false>(p + k, rank, q + k * stride);
    } else {
      HWY_UNROLL(8)
      for (size_t k = 1; k < kRank; ++k)
        addColumn<false>(p + k, rank, q + k * stride);
    }
  }

  template <bool kFirst>
  HWY_INLINE void addColumn(const T *p, size_t rank, const T *q) {
    Block<T> column[kBlocks];
    HWY_UNROLL(8)
    for (size_t c = 0; c < kBlocks; ++c)
      column[c] = loadBlock<ElementOf<T>>(q + c * kBlock<T>);
    HWY_UNROLL(8)
    for (size_t b = 0; b < kRows; ++b) {
      const auto factor = setBlock(p[b * rank]);
      HWY_UNROLL(8)
      for (size_t c = 0; c < kBlocks; ++c)
        products[b][c] = kFirst ? mul(factor, column[c])
                                : mulAdd(factor, column[c], products[b][c]);
    }
  }
};

template <size_t kRank, size_t kRows, class Target, class T>
HWY_INLINE void reconstructRows(const Target &target, size_t columns,
                                const T *HWY_RESTRICT p, size_t rank,
                                const T *HWY_RESTRICT q, size_t stride) {
  constexpr size_t kBlocks = kLarge ? 2 : 1;
  size_t j = 0;
  for (; j + kBlocks * kBlock<T> <= columns; j += kBlocks * kBlock<T>) {
    const Tile<kRank, kRows, kBlocks, T> tile(p, rank, q + j, stride);
    HWY_UNROLL(8)
    for (size_t b = 0; b < kRows; ++b) {
      HWY_UNROLL(8)
      for (size_t c = 0; c < kBlocks; ++c) {
        target.whole(tile.products[b][c], b * columns + j + c * kBlock<T>);
      }
    }
  }
  for (; j < columns; j += kBlock<T>) {
    const Tile<kRank, kRows, 1, T> tile(p, rank, q + j, stride);
    const size_t count = columns - j;
    for (size_t b = 0; b < kRows; ++b) {
      if (count >= kBlock<T>)
        target.whole(tile.products[b][0], b * columns + j);
      else
        target.partial(tile.products[b][0], b * columns + j, count);
    }
  }
}

template <size_t kRank, class Target, class T>
void reconstructAll(const Target &target, size_t rows, size_t columns,
                    const T *p, size_t rank, const T *q) {
  constexpr size_t kRows = rowsTogether(kRank);
  const size_t stride = packedStride(columns);
  size_t i = 0;
  for (; i + kRows <= rows; i += kRows)
    reconstructRows<kRank, kRows>(target.from(i * columns), columns,
                                  p + i * rank, rank, q, stride);
  for (; i < rows; ++i)
    reconstructRows<kRank, 1>(target.from(i * columns), columns, p + i * rank,
                              rank, q, stride);
}

/// Reconstructs M; `p` and `packed` (Q's columns) are in the computation type.
void reconstructKernel(Dtype type, const LowRankShape &shape, const void *p,
                       const void *packed, const void *m, void *out, void *err,
                       int64_t divisor, Stores stores) {
  const auto rows = static_cast<size_t>(shape.rows);
  const auto columns = static_cast<size_t>(shape.columns);
  const auto rank = static_cast<size_t>(shape.rank);
  withElement(type, [&](auto element) HWY_ATTR {
    using Element = decltype(element);
    using Elem = typename Element::Elem;
    using T = ComputeOf<Element>;
    const auto *factor = static_cast<const T *>(p);
    const auto *q = static_cast<const T *>(packed);
    auto run = [&](auto kindConstant, auto streamConstant) HWY_ATTR {
      const Target<Element, kindConstant.value, streamConstant.value> target{
          static_cast<const Elem *>(m), static_cast<Elem *>(out),
          static_cast<Elem *>(err), static_cast<T>(divisor)};
      if constexpr (kLarge) {
        if (rank == 1)
          return reconstructAll<1>(target, rows, columns, factor, rank, q);
        if (rank == 2)
          return reconstructAll<2>(target, rows, columns, factor, rank, q);
        if (rank == 4)
          return reconstructAll<4>(target, rows, columns, factor, rank, q);
      }
      reconstructAll<0>(target, rows, columns, factor, rank, q);
    };
    // Streaming stores need whole blocks at aligned addresses. The division is
    // not worth a second copy of the code.
    const bool mayStream =
        kLarge && stores == Stores::Streaming && columns % kBlock<T> == 0 &&
        reinterpret_cast<uintptr_t>(out) % (kBlock<T> * sizeof(Elem)) == 0;
    const std::bool_constant<false> cached;
    const std::bool_constant<kLarge> streaming;
    using Kind = ErrorKind;
    const std::integral_constant<Kind, Kind::None> none;
    const std::integral_constant<Kind, Kind::Difference> difference;
    const std::integral_constant<Kind, Kind::DifferenceToQuotient> quotient;
    if (!err)
      return mayStream ? run(none, streaming) : run(none, cached);
    if (divisor != 1)
      return run(quotient, cached);
    return mayStream ? run(difference, streaming) : run(difference, cached);
  });
  if (stores == Stores::Streaming)
    hwy::FlushStream();
}

void packQKernel(Dtype type, const LowRankShape &shape, const void *q,
                 void *packed) {
  const auto columns = static_cast<size_t>(shape.columns);
  const auto rank = static_cast<size_t>(shape.rank);
  if (type == Dtype::F64)
    packFactor(static_cast<const double *>(q), columns, rank,
               static_cast<double *>(packed));
  else
    packFactor(static_cast<const float *>(q), columns, rank,
               static_cast<float *>(packed));
}

} // namespace ddphook::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ddphook::host {

HWY_EXPORT(packQKernel);
HWY_EXPORT(reconstructKernel);

/// Reconstructs from factors of rank 0: the product is zero.
static void reconstructNothing(Dtype type, int64_t count, const void *m,
                               void *out, void *err) {
  if (err)
    copyBytes(err, m, err == m ? 0 : count * dtypeSize(type));
  if (count > 0)
    std::memset(out, 0, static_cast<size_t>(count * dtypeSize(type)));
}

void reconstructMatrix(Dtype type, const LowRankShape &shape, const void *p,
                       const void *q, const void *m, void *out, void *err,
                       int64_t divisor, void *scratch, Stores stores) {
  if (shape.rank == 0)
    return reconstructNothing(type, shape.rows * shape.columns, m, out, err);
  const LowRankScratch parts(type, scratch, shape);
  // Pack Q first; after that, P's wide copy may replace Q's.
  const void *wideQ =
      widenFactor(type, q, shape.columns * shape.rank, parts.wide);
  HWY_DYNAMIC_DISPATCH(packQKernel)(type, shape, wideQ, parts.packed);
  const void *wideP = widenFactor(type, p, shape.rows * shape.rank, parts.wide);
  HWY_DYNAMIC_DISPATCH(reconstructKernel)
  (type, shape, wideP, parts.packed, m, out, err, divisor, stores);
}

} // namespace ddphook::host
#endif // HWY_ONCE
