// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Included once per instruction set by Highway's foreach_target.h; everything
// is in HWY_NAMESPACE.

#if defined(DDPHOOK_KERNELS_SUMS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DDPHOOK_KERNELS_SUMS_INL_H
#undef DDPHOOK_KERNELS_SUMS_INL_H
#else
#define DDPHOOK_KERNELS_SUMS_INL_H
#endif

#include "block-codes-inl.h"

#include <optional>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace ddphook::host::HWY_NAMESPACE {

/// The `count` sources to add, and the divisor of the sum.
template <class CodeT>
struct Addends {
  Addends(const EncodedArray *sources, int count, size_t block, int64_t divisor)
      : sources(sources), count(count), block(block),
        divisor(static_cast<float>(divisor)),
        isPower((divisor & (divisor - 1)) == 0),
        inverse(isPower ? 1.0f / static_cast<float>(divisor) : 1.0f) {}

  /// Returns the codes of block `index` of source `number`.
  HWY_INLINE const typename CodeT::Elem *codes(int number, size_t index) const {
    return codesFrom<CodeT>(sources[number], index * block);
  }
  HWY_INLINE float scale(int number, size_t index) const {
    return scaleAt<CodeT>(sources[number], index);
  }
  /// True if the scales of `blocks` blocks of all sources are usual.
  HWY_INLINE bool haveUsualScales(size_t index, size_t blocks) const {
    for (int number = 0; number < count; ++number)
      if (!areUsual(scalesOf(sources[number]) + index, blocks))
        return false;
    return true;
  }

  const EncodedArray *const sources;
  const int count;
  const size_t block;
  const float divisor;
  /// For a power of two, the division is a product with the same bits.
  const bool isPower;
  const float inverse;
};

/// Sums elements of a block of two or more sources with usual scales. A
/// division by a power of two can then be applied to the scales, and products
/// are exact, so they need no rounding before they are added.
template <class CodeT>
class UsualSum {
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
  using Elem = typename CodeT::Elem;

public:
  HWY_INLINE UsualSum(const Addends<CodeT> &addends, size_t index)
      : addends(addends), index(index), codes0(addends.codes(0, index)),
        codes1(addends.codes(1, index)), decoder0(decoderOf(0)),
        decoder1(decoderOf(1)) {}

  /// Computes the sums from element `i` of the block on.
  template <size_t kVectors>
  HWY_INLINE void at(size_t i, V *sums) const {
    const D d;
    auto place = [&](const Elem *codes, size_t k) HWY_ATTR {
      return codeAt<CodeT>(codes, i + k * hn::Lanes(d));
    };
    prefetchAhead(place(codes0, 0));
    prefetchAhead(place(codes1, 0));
    HWY_UNROLL(4)
    for (size_t k = 0; k < kVectors; ++k)
      sums[k] = decoder1.loadAndAdd(d, place(codes1, k),
                                    decoder0.load(d, place(codes0, k)));
    for (int number = 2; number < addends.count; ++number) {
      const auto decoder = decoderOf(number);
      const auto *codes = addends.codes(number, index);
      prefetchAhead(place(codes, 0));
      HWY_UNROLL(4)
      for (size_t k = 0; k < kVectors; ++k)
        sums[k] = decoder.loadAndAdd(d, place(codes, k), sums[k]);
    }
    if (addends.isPower)
      return;
    HWY_UNROLL(4)
    for (size_t k = 0; k < kVectors; ++k)
      sums[k] = hn::Div(sums[k], hn::Set(d, addends.divisor));
  }

private:
  HWY_INLINE Decoder<CodeT, D> decoderOf(int number) const {
    return {D(), addends.scale(number, index) * addends.inverse};
  }

  const Addends<CodeT> &addends;
  const size_t index;
  const Elem *const codes0, *const codes1;
  const Decoder<CodeT, D> decoder0, decoder1;
};

/// Does the same for encodeAndFind(). It also keeps the sums and prefetches the
/// destination of their codes: a store that misses stalls all stores after it.
template <class CodeT>
struct KeptSum {
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;

  template <size_t kVectors>
  HWY_INLINE void load(size_t i, V *vectors) const {
    const D d;
    prefetchAhead(codeAt<CodeT>(codes, i));
    sum.template at<kVectors>(i, vectors);
    HWY_UNROLL(4)
    for (size_t k = 0; k < kVectors; ++k)
      hn::Store(vectors[k], d, to + i + k * hn::Lanes(d));
  }

  const UsualSum<CodeT> &sum;
  float *const to;
  typename CodeT::Elem *const codes;
};

/// Adds sources, for forBlocksAhead(). Keeps a group's sums until they are
/// encoded.
template <class CodeT>
class SumWork {
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
  using Magnitudes = hn::Vec<Like<int32_t, D>>;

public:
  HWY_INLINE SumWork(const Addends<CodeT> &addends, EncodedArray out,
                     const std::optional<Rounding> &rounding)
      : addends(addends), block(addends.block), out(out), rounding(rounding) {}

  HWY_INLINE Magnitudes most(size_t index, size_t size, size_t number) {
    float *to = sums + number * block;
    if constexpr (isScaled<CodeT>) {
      if (HWY_LIKELY(addends.count > 1 && size == block &&
                     addends.haveUsualScales(index, 1)))
        return addUsual(index, to);
    }
    using Yes = std::true_type;
    using No = std::false_type;
    if (addends.count == 1)
      return addSource(Yes(), Yes(), 0, index, size, to);
    addSource(Yes(), No(), 0, index, size, to);
    for (int source = 1; source < addends.count - 1; ++source)
      addSource(No(), No(), source, index, size, to);
    return addSource(No(), Yes(), addends.count - 1, index, size, to);
  }
  HWY_INLINE void encode(size_t index, size_t size, size_t number,
                         const BlockScale &scale) const {
    encodeInto<CodeT>(out, F32(), sums + number * block, index * block, size,
                      scale, rounding);
  }
  HWY_INLINE bool canDoBoth(size_t index, size_t blocks) const {
    return !rounding && addends.count > 1 &&
           addends.haveUsualScales(index, blocks);
  }
  HWY_INLINE Magnitudes both(size_t before, size_t index, size_t number,
                             const BlockScale &scale) {
    float *place = sums + number * block;
    const UsualSum<CodeT> sum(addends, index);
    const NearestCodes<CodeT, F32> nearest(
        place, codesFrom<CodeT>(out, before * block), scale);
    return encodeAndFind(
        nearest, block,
        KeptSum<CodeT>{sum, place, codesFrom<CodeT>(out, index * block)});
  }

private:
  HWY_INLINE Magnitudes addUsual(size_t index, float *to) const {
    const D d;
    const UsualSum<CodeT> sum(addends, index);
    const KeptSum<CodeT> kept{sum, to, codesFrom<CodeT>(out, index * block)};
    auto most = hn::Zero(Like<int32_t, D>());
    for (size_t i = 0; i < block; i += 2 * hn::Lanes(d)) {
      V vectors[2];
      kept.template load<2>(i, vectors);
      most = hn::Max(
          most, hn::Max(magnitude(d, vectors[0]), magnitude(d, vectors[1])));
    }
    return most;
  }

  /// Adds one more source, and divides after the last one. Writes whole
  /// vectors: zeros follow the elements of a block.
  template <class IsFirst, class IsLast>
  HWY_INLINE Magnitudes addSource(IsFirst, IsLast, int number, size_t index,
                                  size_t size, float *to) const {
    const D d;
    const bool isPower = addends.isPower;
    const auto factor = hn::Set(d, addends.inverse);
    const auto divisors = hn::Set(d, addends.divisor);
    auto most = hn::Zero(Like<int32_t, D>());
    forDecoded<CodeT>(
        d, addends.codes(number, index), addends.scale(number, index), size,
        [&](size_t i, size_t, auto v) HWY_ATTR {
          if constexpr (!IsFirst::value)
            v = hn::Add(hn::Load(d, to + i), v);
          if constexpr (IsLast::value) {
            v = isPower ? hn::Mul(v, factor) : hn::Div(v, divisors);
            most = hn::Max(most, magnitude(d, v));
          }
          hn::Store(v, d, to + i);
        });
    return most;
  }

  const Addends<CodeT> &addends;
  const size_t block;
  const EncodedArray out;
  const std::optional<Rounding> &rounding;
  HWY_ALIGN float sums[kGroupElements];
};

} // namespace ddphook::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif // include guard, toggled for every instruction set
