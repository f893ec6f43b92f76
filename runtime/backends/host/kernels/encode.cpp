// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The loops over blocks, compiled once per instruction set.

#include "encode.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "encode.cpp"
#include "hwy/foreach_target.h"

#include "hwy/cache_control.h"
#include "hwy/highway.h"

#include "block-codes-inl.h"

#include <algorithm>
#include <optional>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace ddphook::host::HWY_NAMESPACE {

/// The elements of a block. Casts have none and process this many at a time.
HWY_INLINE size_t blockOf(const Encoding &encoding) {
  return encoding.block == 0 ? 1024 : static_cast<size_t>(encoding.block);
}

//===----------------------------------------------------------------------===//
// Codes of elements, and elements of codes.
//===----------------------------------------------------------------------===//

/// Loads the elements of a block, for encodeAndFind().
template <class From>
struct Elements {
  template <size_t kVectors>
  HWY_INLINE void load(size_t i, hn::Vec<Floats<From>> *vectors) const {
    const Floats<From> d;
    HWY_UNROLL(4)
    for (size_t k = 0; k < kVectors; ++k) {
      prefetchAhead(x + i + k * hn::Lanes(d));
      vectors[k] = From::load(d, x + i + k * hn::Lanes(d));
    }
  }

  const typename From::Elem *const x;
};

/// Encodes blocks, for forBlocksAhead().
template <class CodeT, class From>
struct EncodeWork {
  HWY_INLINE auto most(size_t index, size_t count, size_t) const {
    return findMost<CodeT>(From(), x + index * block, count);
  }
  HWY_INLINE void encode(size_t index, size_t count, size_t,
                         const BlockScale &scale) const {
    encodeInto<CodeT>(out, From(), x + index * block, index * block, count,
                      scale, rounding);
  }
  HWY_INLINE bool canDoBoth(size_t, size_t) const { return !rounding; }
  HWY_INLINE auto both(size_t before, size_t index, size_t,
                       const BlockScale &scale) const {
    const size_t begin = before * block;
    const NearestCodes<CodeT, From> nearest(
        x + begin, codesFrom<CodeT>(out, begin), scale);
    return encodeAndFind(nearest, block, Elements<From>{x + index * block});
  }

  const typename From::Elem *const x;
  const size_t block;
  const EncodedArray out;
  const std::optional<Rounding> &rounding;
};

// The loops for a code and a type of elements are functions of their own: one
// function with all of them takes the compiler minutes.
template <class CodeT, class From>
HWY_NOINLINE void encodeAll(CodeT, From, const void *in, size_t n, size_t block,
                            EncodedArray out,
                            const std::optional<Rounding> &rounding) {
  forBlocksAhead<CodeT>(
      Floats<From>(), n, block, scalesOf(out),
      EncodeWork<CodeT, From>{static_cast<const typename From::Elem *>(in),
                              block, out, rounding});
}

void encodeKernel(const void *in, Dtype inType, size_t n,
                  const Encoding &encoding, EncodedArray out,
                  const std::optional<Rounding> &rounding) {
  withElement(inType, [&](auto from) HWY_ATTR {
    withCode(encoding.code, [&](auto code) HWY_ATTR {
      encodeAll(code, from, in, n, blockOf(encoding), out, rounding);
    });
  });
}

/// Decodes all blocks of an array.
template <class CodeT, bool kStream, class To>
HWY_NOINLINE void decodeBlocks(To to, EncodedArray in, const Encoding &encoding,
                               size_t n, typename To::Elem *out) {
  const Floats<To> d;
  const size_t block = blockOf(encoding), lanes = hn::Lanes(d);
  for (size_t begin = 0, index = 0; begin < n; begin += block, ++index) {
    const size_t size = std::min(block, n - begin);
    auto *y = out + begin;
    forDecoded<CodeT>(d, codesFrom<CodeT>(in, begin), scaleAt<CodeT>(in, index),
                      size, [&](size_t i, size_t count, auto v) HWY_ATTR {
                        prefetchAhead(codesFrom<CodeT>(in, begin + i));
                        if (HWY_LIKELY(count == lanes))
                          To::template store<kStream>(d, v, y + i);
                        else
                          storeSome(to, d, v, y + i, count);
                      });
  }
}

void decodeKernel(EncodedArray in, const Encoding &encoding, size_t n,
                  void *out, Dtype outType, Stores stores) {
  withElement(outType, [&](auto to) HWY_ATTR {
    using To = decltype(to);
    withCode(encoding.code, [&](auto code) HWY_ATTR {
      using CodeT = decltype(code);
      auto *y = static_cast<typename To::Elem *>(out);
      // Blocks are whole vectors, so all are aligned if the first one is. Other
      // types and small vectors are not worth the code.
      if constexpr (std::is_same_v<To, F32> && HWY_MAX_BYTES > 16) {
        if (stores == Stores::Streaming &&
            reinterpret_cast<uintptr_t>(y) % HWY_MAX_BYTES == 0) {
          decodeBlocks<CodeT, true>(to, in, encoding, n, y);
          return hwy::FlushStream();
        }
      }
      decodeBlocks<CodeT, false>(to, in, encoding, n, y);
    });
  });
}

//===----------------------------------------------------------------------===//
// Sums.
//===----------------------------------------------------------------------===//

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

/// Adds sources, for forBlocksAhead(), and keeps sums until they are encoded.
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

template <class CodeT>
HWY_NOINLINE void sumAll(CodeT, const EncodedArray *sources, int count,
                         size_t n, size_t block, int64_t divisor,
                         EncodedArray out,
                         const std::optional<Rounding> &rounding) {
  const Addends<CodeT> addends(sources, count, block, divisor);
  SumWork<CodeT> work(addends, out, rounding);
  forBlocksAhead<CodeT>(hn::ScalableTag<float>(), n, block, scalesOf(out),
                        work);
}

void sumKernel(const EncodedArray *sources, int count, const Encoding &encoding,
               size_t n, int64_t divisor, EncodedArray out,
               const std::optional<Rounding> &rounding) {
  withCode(encoding.code, [&](auto code) HWY_ATTR {
    sumAll(code, sources, count, n, blockOf(encoding), divisor, out, rounding);
  });
}

//===----------------------------------------------------------------------===//
// Errors.
//===----------------------------------------------------------------------===//

/// Computes y[i] = x[i] minus the value of its code, for one block.
template <class CodeT, class Element>
HWY_INLINE void loseBlock(Element element, const typename Element::Elem *x,
                          const typename CodeT::Elem *codes, float scale,
                          size_t n, typename Element::Elem *y) {
  const Floats<Element> d;
  forDecoded<CodeT>(
      d, codes, scale, n, [&](size_t i, size_t count, auto v) HWY_ATTR {
        // Errors of elements that became infinite or NaN are not fed back.
        auto storeLost = [&](auto dy, auto kept) HWY_ATTR {
          const auto lost = hn::Sub(loadSome(element, dy, x + i, count), kept);
          storeSome(element, dy, hn::IfThenElseZero(hn::IsFinite(kept), lost),
                    y + i, count);
        };
        if constexpr (std::is_same_v<Element, F64>) {
          const Like<double, decltype(d)> dd;
          storeLost(dd, hn::PromoteTo(dd, v));
        } else {
          storeLost(d, v);
        }
      });
}

/// Computes y[i] = x[i] minus the value of its nearest code, for one block with
/// a usual scale.
template <class CodeT, class Element>
HWY_INLINE void loseNearest(Element element, const typename Element::Elem *x,
                            const BlockScale &scale, size_t n,
                            typename Element::Elem *y) {
  const Floats<Element> d;
  const Quotients<decltype(d)> quotients(d, scale);
  const auto factor = hn::Set(d, scale.value);
  forVectors(n, hn::Lanes(d), [&](size_t i, size_t count) HWY_ATTR {
    const auto v = loadSome(element, d, x + i, count);
    const auto kept =
        hn::Mul(CodeT::nearestValue(d, quotients.of(v), v), factor);
    if constexpr (std::is_same_v<Element, F64>) {
      const Like<double, decltype(d)> dd;
      const auto lost =
          hn::Sub(loadSome(element, dd, x + i, count), hn::PromoteTo(dd, kept));
      storeSome(element, dd, lost, y + i, count);
    } else {
      storeSome(element, d, hn::Sub(v, kept), y + i, count);
    }
  });
}

/// Computes the error of blocks, for forBlocksAhead().
template <class CodeT, class Element>
struct ErrorWork {
  using Elem = typename Element::Elem;

  HWY_INLINE auto most(size_t index, size_t count, size_t) const {
    return findMost<CodeT>(Element(), x + index * block, count);
  }
  HWY_INLINE void encode(size_t index, size_t count, size_t,
                         const BlockScale &scale) const {
    const size_t begin = index * block;
    if constexpr (isScaled<CodeT>) {
      if (HWY_LIKELY(!rounding && isUsual(scale.value)))
        return loseNearest<CodeT>(Element(), x + begin, scale, count,
                                  y + begin);
    }
    // Codes that are decoded at once need no packing.
    HWY_ALIGN typename CodeT::Elem codes[Encoding::kMostBlock];
    BlockWords room;
    encodeBlock<CodeT>(Element(), x + begin, count, codes, scale,
                       randomWords<CodeT>(rounding, begin, count, room));
    loseBlock<CodeT>(Element(), x + begin, codes, scale.value, count,
                     y + begin);
  }
  HWY_INLINE bool canDoBoth(size_t, size_t) const { return false; }
  HWY_INLINE auto both(size_t, size_t index, size_t, const BlockScale &) const {
    return most(index, 0, 0);
  }

  const Elem *const x;
  Elem *const y;
  const size_t block;
  const std::optional<Rounding> &rounding;
};

template <class CodeT, class Element>
HWY_NOINLINE void errorOfAll(CodeT, Element, const void *in, void *out,
                             size_t n, size_t block,
                             const std::optional<Rounding> &rounding) {
  forBlocksAhead<CodeT>(
      Floats<Element>(), n, block, /*scales=*/nullptr,
      ErrorWork<CodeT, Element>{static_cast<const typename Element::Elem *>(in),
                                static_cast<typename Element::Elem *>(out),
                                block, rounding});
}

void errorKernel(const void *in, void *out, Dtype type, size_t n,
                 const Encoding &encoding,
                 const std::optional<Rounding> &rounding) {
  withElement(type, [&](auto element) HWY_ATTR {
    withCode(encoding.code, [&](auto code) HWY_ATTR {
      errorOfAll(code, element, in, out, n, blockOf(encoding), rounding);
    });
  });
}

} // namespace ddphook::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ddphook::host {

HWY_EXPORT(encodeKernel);
HWY_EXPORT(decodeKernel);
HWY_EXPORT(sumKernel);
HWY_EXPORT(errorKernel);

void encodeArray(const void *in, Dtype inType, int64_t n,
                 const Encoding &encoding, EncodedArray out,
                 const std::optional<Rounding> &rounding) {
  HWY_DYNAMIC_DISPATCH(encodeKernel)
  (in, inType, static_cast<size_t>(n), encoding, out, rounding);
}

void decodeArray(EncodedArray in, const Encoding &encoding, int64_t n,
                 void *out, Dtype outType, Stores stores) {
  HWY_DYNAMIC_DISPATCH(decodeKernel)
  (in, encoding, static_cast<size_t>(n), out, outType, stores);
}

void sumEncoded(const EncodedArray *sources, int count,
                const Encoding &encoding, int64_t n, int64_t divisor,
                EncodedArray out, const std::optional<Rounding> &rounding) {
  HWY_DYNAMIC_DISPATCH(sumKernel)
  (sources, count, encoding, static_cast<size_t>(n), divisor, out, rounding);
}

void encodingError(const void *in, void *out, Dtype type, int64_t n,
                   const Encoding &encoding,
                   const std::optional<Rounding> &rounding) {
  if (encoding.isAffine())
    return affineError(in, out, type, n, encoding);
  HWY_DYNAMIC_DISPATCH(errorKernel)
  (in, out, type, static_cast<size_t>(n), encoding, rounding);
}

} // namespace ddphook::host
#endif // HWY_ONCE
