//===- encode.cpp - casts and scaled codes of the host backend ------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The loops over blocks, compiled once per instruction set. A block is read
// twice, for its largest element and, some blocks later, for its codes; the
// second time it comes from the first-level cache.
//
//===----------------------------------------------------------------------===//
#include "encode.h"

#include "affine.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "encode.cpp"
#include "hwy/foreach_target.h"

#include "hwy/cache_control.h"
#include "hwy/highway.h"

#include "codes-inl.h"
#include "random-inl.h"
#include "scales-inl.h"

#include <algorithm>
#include <cstring>

#ifndef DDPHOOK_ENCODE_ONCE
#define DDPHOOK_ENCODE_ONCE
namespace ddphook::host {

/// Elements of a block: casts have none, and are taken so many at a time.
inline size_t blockOf(const Encoding &encoding) {
  return encoding.block == 0 ? 1024 : static_cast<size_t>(encoding.block);
}

} // namespace ddphook::host
#endif // DDPHOOK_ENCODE_ONCE

HWY_BEFORE_NAMESPACE();
namespace ddphook::host::HWY_NAMESPACE {

/// One of the two codes next to each magnitude, by the random words from
/// `words` on; the upper one as often as the magnitude is nearer to it.
template <class CodeT, class D, class V>
HWY_INLINE V roundStochastically(D d, V v, const uint32_t *words) {
  const Like<uint32_t, D> du;
  const Like<int32_t, D> di;
  auto steps = hn::Abs(v);
  auto step = hn::Set(d, 1.0f);
  if constexpr (CodeT::kIsFloat) {
    // The distance of codes: a power of two, as is its inverse.
    const auto least = hn::Set(di, (127 + CodeT::kLeastExponent) << 23);
    const auto exponent = hn::Max(
        hn::And(hn::BitCast(di, steps), hn::Set(di, 0x7f800000)), least);
    const auto fraction = hn::Set(di, CodeT::kFractionBits << 23);
    const auto power = hn::Sub(exponent, fraction);
    step = hn::BitCast(d, power);
    steps =
        hn::Mul(steps, hn::BitCast(d, hn::Sub(hn::Set(di, 254 << 23), power)));
  }
  const auto whole = hn::Floor(steps);
  // 24 bits: every multiple of 2^-24 below 1 is a float.
  const auto random =
      hn::Mul(hn::ConvertTo(
                  d, hn::BitCast(di, hn::ShiftRight<8>(hn::LoadU(du, words)))),
              hn::Set(d, 0x1p-24f));
  const auto isUpper = hn::Lt(random, hn::Sub(steps, whole));
  const auto rounded =
      hn::Add(whole, hn::IfThenElseZero(isUpper, hn::Set(d, 1.0f)));
  return hn::CopySign(hn::Mul(rounded, step), v);
}

/// Random words for the elements of a block.
struct BlockWords {
  HWY_ALIGN uint32_t words[Encoding::kMostBlock + kRandomWords];
};

/// Magnitudes of one block of `n` elements, the largest one among them, for
/// codes with scales.
template <class CodeT, class From>
HWY_INLINE auto findMost(From from, const typename From::Elem *in, size_t n) {
  const Floats<From> d;
  auto most = hn::Zero(Like<int32_t, decltype(d)>());
  if constexpr (isScaled<CodeT>)
    forVectors(n, hn::Lanes(d), [&](size_t i, size_t count) HWY_ATTR {
      prefetchAhead(in + i);
      most = hn::Max(most, magnitude(d, loadSome(from, d, in + i, count)));
    });
  return most;
}

/// The nearest codes of one block with a usual scale. That was rounded by at
/// most 2^-8 of it, so that the largest quotient is less than half a code above
/// the largest code, and rounded to it: nothing has to be clamped.
template <class CodeT, class From>
HWY_INLINE void encodeNearest(From from, const typename From::Elem *in,
                              size_t n, typename CodeT::Elem *codes,
                              const Quotients<CodeT, Floats<From>> &quotients) {
  using Element = typename CodeT::Element;
  const Floats<From> d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  auto next = [&](size_t k) HWY_ATTR {
    return quotients.of(From::load(d, in + i + k * lanes));
  };
  for (; i + 4 * lanes <= n; i += 4 * lanes)
    storeFour(Element(), d, next(0), next(1), next(2), next(3),
              codeAt<CodeT>(codes, i), lanes / CodeT::kInElem);
  forVectors(n - i, lanes, [&](size_t k, size_t count) HWY_ATTR {
    storeCodes<CodeT>(d, quotients.of(loadSome(from, d, in + i + k, count)),
                      codeAt<CodeT>(codes, i + k), count);
  });
}

/// The codes of one block with that scale, with random words or with null.
template <class CodeT, class From>
HWY_INLINE void encodeBlock(From from, const typename From::Elem *in, size_t n,
                            typename CodeT::Elem *codes,
                            const BlockScale &scale, const uint32_t *words) {
  const Floats<From> d;
  const size_t lanes = hn::Lanes(d);
  if constexpr (!isScaled<CodeT>) {
    (void)scale;
    (void)words;
    forVectors(n, lanes, [&](size_t i, size_t count) HWY_ATTR {
      storeCodes<CodeT>(d, loadSome(from, d, in + i, count), codes + i, count);
    });
  } else {
    if (HWY_LIKELY(!words && isUsual(scale.value)))
      return encodeNearest<CodeT>(from, in, n, codes, {d, scale});
    if (!(scale.value > 0)) { // zero or NaN
      std::memset(codes, 0, hwy::DivCeil(n, CodeT::kInElem));
      return;
    }
    const auto divisor = hn::Set(d, scale.value);
    const auto largest = hn::Set(d, CodeT::largest);
    const auto least = hn::Set(d, -CodeT::largest);
    // The scale was rounded.
    auto quotient = [&](size_t i, size_t count) HWY_ATTR {
      const auto v = hn::Div(loadSome(from, d, in + i, count), divisor);
      return hn::Min(hn::Max(v, least), largest);
    };
    if (words) {
      forVectors(n, lanes, [&](size_t i, size_t count) HWY_ATTR {
        const auto v =
            roundStochastically<CodeT>(d, quotient(i, count), words + i);
        storeCodes<CodeT>(d, v, codeAt<CodeT>(codes, i), count);
      });
      return;
    }
    forVectors(n, lanes, [&](size_t i, size_t count) HWY_ATTR {
      storeCodes<CodeT>(d, quotient(i, count), codeAt<CodeT>(codes, i), count);
    });
  }
}

/// What encodeBlock() takes for a block of `n` elements that begins with
/// element `begin` of the array.
template <class CodeT>
HWY_INLINE const uint32_t *randomWords(const std::optional<Rounding> &rounding,
                                       size_t begin, size_t n,
                                       BlockWords &room) {
  if (!isScaled<CodeT> || HWY_LIKELY(!rounding))
    return nullptr;
  fillRandom(*from(rounding, static_cast<int64_t>(begin)), n, room.words);
  return room.words;
}

/// The scales of an array from the block of element `begin` on.
HWY_INLINE uint16_t *scalesFrom(const EncodedArray &array,
                                const Encoding &encoding, size_t begin) {
  return static_cast<uint16_t *>(array.scales) + begin / blockOf(encoding);
}

/// The scale of the block that begins with element `begin`; casts have none.
template <class CodeT>
HWY_INLINE float scaleAt(const EncodedArray &array, const Encoding &encoding,
                         size_t begin) {
  return isScaled<CodeT> ? fromBFloat16(*scalesFrom(array, encoding, begin))
                         : 1.0f;
}

/// Calls fn(begin, count, vector) with the elements of a block's codes.
template <class CodeT, class D, class Fn>
HWY_INLINE void forDecoded(D d, const typename CodeT::Elem *codes, float scale,
                           size_t n, const Fn &fn) {
  const auto factor = hn::Set(d, scale);
  forVectors(n, hn::Lanes(d), [&](size_t i, size_t count) HWY_ATTR {
    auto v = loadCodes<CodeT>(d, codeAt<CodeT>(codes, i), count);
    if constexpr (isScaled<CodeT>)
      v = hn::Mul(v, factor);
    fn(i, count, v);
  });
}

/// Encodes one block, which begins with element `begin` of an array.
template <class CodeT, class From>
HWY_INLINE void encodeInto(EncodedArray out, From from,
                           const typename From::Elem *in, size_t begin,
                           size_t n, const BlockScale &scale,
                           const std::optional<Rounding> &rounding) {
  auto *codes = static_cast<typename CodeT::Elem *>(out.codes);
  BlockWords room;
  const uint32_t *words = randomWords<CodeT>(rounding, begin, n, room);
  encodeBlock<CodeT>(from, in, n, codeAt<CodeT>(codes, begin), scale, words);
}

void encodeKernel(const void *in, Dtype inType, size_t n,
                  const Encoding &encoding, EncodedArray out,
                  const std::optional<Rounding> &rounding) {
  withElement(inType, [&](auto from) HWY_ATTR {
    using From = decltype(from);
    withCode(encoding.code, [&](auto code) HWY_ATTR {
      using CodeT = decltype(code);
      const auto *x = static_cast<const typename From::Elem *>(in);
      forBlocksAhead<CodeT>(
          n, blockOf(encoding), scalesFrom(out, encoding, 0),
          [&](size_t i, size_t count, size_t)
              HWY_ATTR { return findMost<CodeT>(from, x + i, count); },
          [&](size_t i, size_t count, size_t, const BlockScale &scale)
              HWY_ATTR {
                encodeInto<CodeT>(out, from, x + i, i, count, scale, rounding);
              });
    });
  });
}

/// The codes of an array from element `begin` on, which begins a block.
template <class CodeT>
HWY_INLINE const typename CodeT::Elem *codesFrom(const EncodedArray &array,
                                                 size_t begin) {
  return codeAt<CodeT>(static_cast<const typename CodeT::Elem *>(array.codes),
                       begin);
}

/// Decodes all blocks of an array.
template <class CodeT, bool kStream, class To>
HWY_INLINE void decodeBlocks(To to, EncodedArray in, const Encoding &encoding,
                             size_t n, typename To::Elem *out) {
  const Floats<To> d;
  const size_t block = blockOf(encoding), lanes = hn::Lanes(d);
  for (size_t begin = 0; begin < n; begin += block) {
    const size_t size = std::min(block, n - begin);
    auto *y = out + begin;
    forDecoded<CodeT>(d, codesFrom<CodeT>(in, begin),
                      scaleAt<CodeT>(in, encoding, begin), size,
                      [&](size_t i, size_t count, auto v) HWY_ATTR {
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
      // Blocks are whole vectors: all are aligned if the first one is. Other
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

/// Adds what sources have of a block, and divides.
template <class CodeT>
class BlockSum {
public:
  BlockSum(const EncodedArray *sources, int count, const Encoding &encoding,
           int64_t divisor)
      : sources(sources), count(count), encoding(encoding),
        divisor(static_cast<float>(divisor)),
        inverse(1.0f / static_cast<float>(divisor)),
        isPower((divisor & (divisor - 1)) == 0) {}

  /// Of `size` elements from `begin` on. Whole vectors are written: blocks end
  /// with zeros. Returns magnitudes, the largest one among them.
  HWY_INLINE auto operator()(size_t begin, size_t size, float *sums) const {
    if constexpr (isScaled<CodeT>) {
      if (HWY_LIKELY(count == 2 && isPower && isUsual(scale(0, begin)) &&
                     isUsual(scale(1, begin))))
        return addTwo(begin, size, sums);
    }
    using Yes = std::true_type;
    using No = std::false_type;
    if (count == 1)
      return addSource(Yes(), Yes(), 0, begin, size, sums);
    addSource(Yes(), No(), 0, begin, size, sums);
    for (int number = 1; number < count - 1; ++number)
      addSource(No(), No(), number, begin, size, sums);
    return addSource(No(), Yes(), count - 1, begin, size, sums);
  }

private:
  using D = hn::ScalableTag<float>;
  using Magnitudes = hn::Vec<Like<int32_t, D>>;

  HWY_INLINE float scale(int number, size_t begin) const {
    return scaleAt<CodeT>(sources[number], encoding, begin);
  }

  /// Adds one more source, and divides when that is the last one.
  template <class IsFirst, class IsLast>
  HWY_INLINE Magnitudes addSource(IsFirst, IsLast, int number, size_t begin,
                                  size_t size, float *sums) const {
    const D d;
    const auto factor = hn::Set(d, inverse), divisors = hn::Set(d, divisor);
    auto most = hn::Zero(Like<int32_t, D>());
    forDecoded<CodeT>(
        d, codesFrom<CodeT>(sources[number], begin), scale(number, begin), size,
        [&](size_t i, size_t, auto v) HWY_ATTR {
          if constexpr (!IsFirst::value)
            v = hn::Add(hn::Load(d, sums + i), v);
          if constexpr (IsLast::value) {
            // By a power of two, that is a product with the same bits.
            v = isPower ? hn::Mul(v, factor) : hn::Div(v, divisors);
            most = hn::Max(most, magnitude(d, v));
          }
          hn::Store(v, d, sums + i);
        });
    return most;
  }

  /// The same of two sources with usual scales and a divisor that is a power of
  /// two: scales can be divided instead of sums, and products are exact, so
  /// that one of them needs no rounding before it is added.
  HWY_INLINE Magnitudes addTwo(size_t begin, size_t size, float *sums) const {
    const D d;
    const auto *first = codesFrom<CodeT>(sources[0], begin);
    const auto *second = codesFrom<CodeT>(sources[1], begin);
    const auto factor0 = hn::Set(d, scale(0, begin) * inverse);
    const auto factor1 = hn::Set(d, scale(1, begin) * inverse);
    auto most = hn::Zero(Like<int32_t, D>());
    forVectors(size, hn::Lanes(d), [&](size_t i, size_t some) HWY_ATTR {
      const auto v = hn::MulAdd(
          loadCodes<CodeT>(d, codeAt<CodeT>(second, i), some), factor1,
          hn::Mul(loadCodes<CodeT>(d, codeAt<CodeT>(first, i), some), factor0));
      most = hn::Max(most, magnitude(d, v));
      hn::Store(v, d, sums + i);
    });
    return most;
  }

  const EncodedArray *const sources;
  const int count;
  const Encoding &encoding;
  const float divisor, inverse;
  const bool isPower;
};

void sumKernel(const EncodedArray *sources, int count, const Encoding &encoding,
               size_t n, int64_t divisor, EncodedArray out,
               const std::optional<Rounding> &rounding) {
  withCode(encoding.code, [&](auto code) HWY_ATTR {
    using CodeT = decltype(code);
    HWY_ALIGN float sums[Encoding::kMostBlock];
    const size_t block = blockOf(encoding);
    const BlockSum<CodeT> add(sources, count, encoding, divisor);
    forBlocksAhead<CodeT>(
        n, block, scalesFrom(out, encoding, 0),
        [&](size_t i, size_t size, size_t number)
            HWY_ATTR { return add(i, size, sums + number * block); },
        [&](size_t i, size_t size, size_t number, const BlockScale &scale)
            HWY_ATTR {
              encodeInto<CodeT>(out, F32(), sums + number * block, i, size,
                                scale, rounding);
            });
  });
}

/// y[i] = x[i] less what its code decodes to, of one block.
template <class CodeT, class Element>
HWY_INLINE void loseBlock(Element element, const typename Element::Elem *x,
                          const typename CodeT::Elem *codes, float scale,
                          size_t n, typename Element::Elem *y) {
  const Floats<Element> d;
  forDecoded<CodeT>(
      d, codes, scale, n, [&](size_t i, size_t count, auto v) HWY_ATTR {
        // What became an infinity or a NaN is not fed back.
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

void errorKernel(const void *in, void *out, Dtype type, size_t n,
                 const Encoding &encoding,
                 const std::optional<Rounding> &rounding) {
  withElement(type, [&](auto element) HWY_ATTR {
    using Element = decltype(element);
    withCode(encoding.code, [&](auto code) HWY_ATTR {
      using CodeT = decltype(code);
      const auto *x = static_cast<const typename Element::Elem *>(in);
      auto *y = static_cast<typename Element::Elem *>(out);
      // A code needs no packing to be decoded again.
      HWY_ALIGN typename CodeT::Elem codes[Encoding::kMostBlock];
      forBlocksAhead<CodeT>(
          n, blockOf(encoding), /*scales=*/nullptr,
          [&](size_t i, size_t count, size_t)
              HWY_ATTR { return findMost<CodeT>(element, x + i, count); },
          [&](size_t i, size_t count, size_t,
              const BlockScale &scale) HWY_ATTR {
            BlockWords room;
            encodeBlock<CodeT>(element, x + i, count, codes, scale,
                               randomWords<CodeT>(rounding, i, count, room));
            loseBlock<CodeT>(element, x + i, codes, scale.value, count, y + i);
          });
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
