// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A block is 64 bytes of the type in which elements are computed, in as many
// vectors as that takes. Sums over blocks have the same lanes, and therefore
// the same bits, on every instruction set; sums over vectors would not.
//
// Also packs factors: see lowrank_scratch.h.

#if defined(DDPHOOK_KERNELS_BLOCKS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DDPHOOK_KERNELS_BLOCKS_INL_H
#undef DDPHOOK_KERNELS_BLOCKS_INL_H
#else
#define DDPHOOK_KERNELS_BLOCKS_INL_H
#endif

#include "elements-inl.h"

#include <algorithm>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace ddphook::host::HWY_NAMESPACE {

/// The type in which elements are computed, and the element class of that type.
template <class Element>
using ComputeOf =
    std::conditional_t<std::is_same_v<Element, F64>, double, float>;
template <class T>
using ElementOf = std::conditional_t<std::is_same_v<T, double>, F64, F32>;

/// The number of elements in a block.
template <class T>
constexpr size_t kBlock = 64 / sizeof(T);

template <class T>
using BlockTag = hn::CappedTag<T, kBlock<T>>;

template <class T>
struct Block {
  static constexpr size_t lanes = hn::MaxLanes(BlockTag<T>());
  static constexpr size_t parts = kBlock<T> / lanes;

  hn::Vec<BlockTag<T>> part[parts];
  // g++ compiles an implicit constructor for the oldest processor.
  HWY_INLINE Block() = default;
};

/// Returns the block whose parts are fn(part number).
template <class T, class Fn>
HWY_INLINE Block<T> makeBlock(const Fn &fn) {
  Block<T> block;
  HWY_UNROLL(16)
  for (size_t i = 0; i < Block<T>::parts; ++i)
    block.part[i] = fn(i);
  return block;
}

template <class T>
HWY_INLINE Block<T> setBlock(T value) {
  return makeBlock<T>([&](size_t)
                          HWY_ATTR { return hn::Set(BlockTag<T>(), value); });
}

/// True if conversions are function calls instead of being inlined into every
/// loop: on old processors they take many instructions, which would bloat code.
template <class Element>
constexpr bool kConvertsOutOfLine =
    HWY_MAX_BYTES <= 16 && isHalf(Element::type);

template <class Element, class T>
HWY_INLINE Block<T> loadInline(const typename Element::Elem *p) {
  return makeBlock<T>([&](size_t i) HWY_ATTR {
    return Element::load(BlockTag<T>(), p + i * Block<T>::lanes);
  });
}
template <class Element, class T>
HWY_NOINLINE Block<T> loadCalled(const typename Element::Elem *p) {
  return loadInline<Element, T>(p);
}

template <class Element, class T = ComputeOf<Element>>
HWY_INLINE Block<T> loadBlock(const typename Element::Elem *p) {
  if constexpr (kConvertsOutOfLine<Element>)
    return loadCalled<Element, T>(p);
  else
    return loadInline<Element, T>(p);
}

/// Loads the first `count` elements, which may be 0, followed by zeros.
template <class Element, class T = ComputeOf<Element>>
HWY_INLINE Block<T> loadPartialBlock(const typename Element::Elem *p,
                                     size_t count) {
  HWY_ALIGN typename Element::Elem buffer[kBlock<T>] = {};
  if (count > 0)
    std::memcpy(buffer, p, count * sizeof(*p));
  return loadBlock<Element>(buffer);
}

template <class Element, bool kStream, class T>
HWY_INLINE void storeInline(const Block<T> &block, typename Element::Elem *p) {
  HWY_UNROLL(16)
  for (size_t i = 0; i < Block<T>::parts; ++i)
    Element::template store<kStream>(BlockTag<T>(), block.part[i],
                                     p + i * Block<T>::lanes);
}
template <class Element, class T>
HWY_NOINLINE void storeCalled(const Block<T> &block,
                              typename Element::Elem *p) {
  storeInline<Element, false>(block, p);
}

template <class Element, bool kStream = false, class T>
HWY_INLINE void storeBlock(const Block<T> &block, typename Element::Elem *p) {
  if constexpr (kConvertsOutOfLine<Element>)
    storeCalled<Element>(block, p);
  else
    storeInline<Element, kStream>(block, p);
}

/// Stores the first `count` elements.
template <class Element, class T>
HWY_INLINE void storePartialBlock(const Block<T> &block,
                                  typename Element::Elem *p, size_t count) {
  HWY_ALIGN typename Element::Elem buffer[kBlock<T>];
  storeBlock<Element>(block, buffer);
  if (count > 0)
    std::memcpy(p, buffer, count * sizeof(*p));
}

template <class T>
HWY_INLINE Block<T> add(const Block<T> &a, const Block<T> &b) {
  return makeBlock<T>([&](size_t i)
                          HWY_ATTR { return hn::Add(a.part[i], b.part[i]); });
}
template <class T>
HWY_INLINE Block<T> sub(const Block<T> &a, const Block<T> &b) {
  return makeBlock<T>([&](size_t i)
                          HWY_ATTR { return hn::Sub(a.part[i], b.part[i]); });
}
template <class T>
HWY_INLINE Block<T> mul(const Block<T> &a, const Block<T> &b) {
  return makeBlock<T>([&](size_t i)
                          HWY_ATTR { return hn::Mul(a.part[i], b.part[i]); });
}
template <class T>
HWY_INLINE Block<T> div(const Block<T> &a, const Block<T> &b) {
  return makeBlock<T>([&](size_t i)
                          HWY_ATTR { return hn::Div(a.part[i], b.part[i]); });
}
template <class T>
HWY_INLINE Block<T> mulAdd(const Block<T> &a, const Block<T> &b,
                           const Block<T> &c) {
  return makeBlock<T>([&](size_t i) HWY_ATTR {
    return hn::MulAdd(a.part[i], b.part[i], c.part[i]);
  });
}
template <class Element, class T>
HWY_INLINE Block<T> roundInline(const Block<T> &a) {
  return makeBlock<T>([&](size_t i) HWY_ATTR {
    return Element::round(BlockTag<T>(), a.part[i]);
  });
}
template <class Element, class T>
HWY_NOINLINE Block<T> roundCalled(const Block<T> &a) {
  return roundInline<Element>(a);
}

/// Rounds to values that the element type can hold.
template <class Element, class T>
HWY_INLINE Block<T> roundBlock(const Block<T> &a) {
  if constexpr (kConvertsOutOfLine<Element>)
    return roundCalled<Element>(a);
  else
    return roundInline<Element>(a);
}
template <class Element, class T>
HWY_INLINE T roundScalar(T value) {
  return hn::GetLane(roundBlock<Element>(setBlock(value)).part[0]);
}

/// Returns the sum of a vector's lanes: adds halves until one lane is left.
template <class D>
HWY_INLINE hn::TFromD<D> sumLanes(D d, hn::Vec<D> v) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (hn::MaxLanes(d) * sizeof(hn::TFromD<D>) > 16) {
    const hn::Half<D> half;
    return sumLanes(half,
                    hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else if constexpr (isDouble<D>) {
    return hn::GetLane(hn::Add(v, hn::Shuffle01(v)));
  } else {
    const auto pairs = hn::Add(v, hn::Shuffle1032(v));
    return hn::GetLane(hn::Add(pairs, hn::Shuffle2301(pairs)));
  }
#else
  (void)d;
  return hn::GetLane(v);
#endif
}

/// Returns the sum of a block's lanes, in the order of sumLanes().
template <class T>
HWY_INLINE T sumBlock(Block<T> block) {
  HWY_UNROLL(4)
  for (size_t half = Block<T>::parts / 2; half > 0; half /= 2) {
    HWY_UNROLL(8)
    for (size_t i = 0; i < half; ++i)
      block.part[i] = hn::Add(block.part[i], block.part[i + half]);
  }
  return sumLanes(BlockTag<T>(), block.part[0]);
}

/// Calls fn with `value` as a constant if it is between 1 and `kMax`.
template <size_t kMax, class Fn>
HWY_INLINE void withConstant(size_t value, const Fn &fn) {
  if (value == kMax)
    return fn(std::integral_constant<size_t, kMax>());
  if constexpr (kMax > 1)
    withConstant<kMax - 1>(value, fn);
}

/// Packs `kCount` columns of a row-major factor. Rows are `length` elements
/// apart, or `kCount` if `length` is 0.
template <size_t kCount, class T>
void packColumns(const T *HWY_RESTRICT factor, size_t rows, size_t length,
                 T *HWY_RESTRICT packed, size_t stride) {
  const size_t step = length == 0 ? kCount : length;
  for (size_t i = 0; i < rows; ++i)
    for (size_t k = 0; k < kCount; ++k)
      packed[k * stride + i] = factor[i * step + k];
}

template <size_t kCount, class T>
void unpackColumns(const T *HWY_RESTRICT packed, size_t rows, size_t length,
                   T *HWY_RESTRICT factor, size_t stride) {
  const size_t step = length == 0 ? kCount : length;
  for (size_t i = 0; i < rows; ++i)
    for (size_t k = 0; k < kCount; ++k)
      factor[i * step + k] = packed[k * stride + i];
}

/// Calls fn(first column, number of columns as a constant, distance of rows)
/// for the columns of a factor. Constants turn the loops above into shuffles.
template <class Fn>
HWY_INLINE void forColumns(size_t rank, const Fn &fn) {
  constexpr size_t most = 8;
  if (rank <= most)
    return withConstant<most>(rank, [&](auto count) HWY_ATTR {
      fn(0, count, std::integral_constant<size_t, 0>());
    });
  for (size_t k = 0; k < rank; k += most)
    withConstant<most>(std::min(most, rank - k),
                       [&](auto count) HWY_ATTR { fn(k, count, rank); });
}

/// Packs a row-major factor: column k goes to packed + k * packedStride(rows).
template <class T>
void packFactor(const T *factor, size_t rows, size_t rank, T *packed) {
  const size_t stride = packedStride(rows);
  for (size_t k = 0; k < rank; ++k)
    std::fill(packed + k * stride + rows, packed + (k + 1) * stride, T(0));
  forColumns(rank, [&](size_t first, auto count, auto length) HWY_ATTR {
    packColumns<count.value>(factor + first, rows, length,
                             packed + first * stride, stride);
  });
}

template <class T>
void unpackFactor(const T *packed, size_t rows, size_t rank, T *factor) {
  const size_t stride = packedStride(rows);
  forColumns(rank, [&](size_t first, auto count, auto length) HWY_ATTR {
    unpackColumns<count.value>(packed + first * stride, rows, length,
                               factor + first, stride);
  });
}

} // namespace ddphook::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif // include guard, toggled for every instruction set
