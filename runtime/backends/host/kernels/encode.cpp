//===- encode.cpp - casts and scaled codes of the host backend ------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The loops over blocks, compiled once per instruction set. A block is read
// twice, for its largest element and for its codes; the second time it comes
// from the first-level cache.
//
//===----------------------------------------------------------------------===//
#include "encode.h"

#include "affine.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "encode.cpp"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "codes-inl.h"
#include "random-inl.h"

#include <algorithm>
#include <cstring>

#ifndef DDPHOOK_ENCODE_ONCE
#define DDPHOOK_ENCODE_ONCE
namespace ddphook::host {

/// Elements of a block: casts have none, and are taken so many at a time.
inline int64_t blockOf(const Encoding &encoding) {
  return encoding.block == 0 ? 1024 : encoding.block;
}

/// A bfloat16's value, and the bfloat16 nearest to a value that is not NaN.
inline float fromBFloat16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}
inline uint16_t toBFloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

} // namespace ddphook::host
#endif // DDPHOOK_ENCODE_ONCE

HWY_BEFORE_NAMESPACE();
namespace ddphook::host::HWY_NAMESPACE {

/// The scale of a block whose largest magnitude has these bits as an f32.
template <class CodeT>
HWY_INLINE uint16_t scaleOf(int32_t largestBits) {
  constexpr int32_t infinity = 0x7f800000;
  if (largestBits >= infinity)
    return 0x7fc0; // NaN, and so are all elements of the block
  float largest;
  std::memcpy(&largest, &largestBits, sizeof(largest));
  return toBFloat16(largest / CodeT::largest);
}

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

/// x / divisor, where inverse = 1 / divisor: as fast as a few products on
/// processors that round once in multiplying and adding.
///
/// It has the bits of a division by a divisor with 8 significant bits, as
/// bfloat16s have, between 2^-64 and 2^64, and quotients of at most 2^10.
/// `near` is at most a few units of its last place wrong, so that `lost` is
/// exact, and the sum that is rounded last is less than 2^-20 units from the
/// quotient. No quotient by such a divisor is closer than 2^-9 units to the
/// middle of two floats, from where it would be rounded to the other one.
/// Quotients so small that `lost` is not exact, below 2^-40, are codes of zero.
template <class CodeT, class D, class V>
HWY_INLINE V divide(D d, V x, V divisor, V inverse) {
  (void)d;
#if HWY_NATIVE_FMA
  const V near = hn::Mul(x, inverse);
  const V lost = hn::NegMulAdd(near, divisor, x);
  const V quotient = hn::MulAdd(lost, inverse, near);
  // The sum of two zeros is positive.
  return CodeT::kIsFloat ? hn::CopySign(quotient, x) : quotient;
#else
  (void)inverse;
  return hn::Div(x, divisor);
#endif
}

/// Random words for the elements of a block.
struct BlockWords {
  HWY_ALIGN uint32_t words[Encoding::kMostBlock + kRandomWords];
};

/// Magnitudes of floats are in the order of their bits, NaNs last.
template <class D, class V>
HWY_INLINE hn::Vec<Like<int32_t, D>> magnitude(D, V v) {
  const Like<int32_t, D> di;
  return hn::And(hn::BitCast(di, v), hn::Set(di, 0x7fffffff));
}

/// The scale of a block whose largest magnitude is one of these.
template <class CodeT, class V>
HWY_INLINE uint16_t scaleOfMost(V most) {
  const hn::DFromV<V> di;
  return scaleOf<CodeT>(hn::GetLane(hn::MaxOfLanes(di, most)));
}

/// Far enough ahead that lines of the next page come before they are needed:
/// the processor's own prefetchers stop where a page ends.
constexpr ptrdiff_t kAheadBytes = 8192;

/// The scale of one block, of `n` elements; casts have none.
template <class CodeT, class From>
HWY_INLINE void findScale(From from, const typename From::Elem *in, size_t n,
                          uint16_t *scale) {
  if constexpr (isScaled<CodeT>) {
    const Floats<From> d;
    auto most = hn::Zero(Like<int32_t, decltype(d)>());
    forVectors(n, hn::Lanes(d), [&](size_t i, size_t count) HWY_ATTR {
      prefetchFrom(in + i, kAheadBytes / sizeof(*in));
      most = hn::Max(most, magnitude(d, loadSome(from, d, in + i, count)));
    });
    *scale = scaleOfMost<CodeT>(most);
  }
}

/// The codes of one block with that scale, with random words or with null.
template <class CodeT, class From>
HWY_INLINE void encodeBlock(From from, const typename From::Elem *in, size_t n,
                            typename CodeT::Elem *codes, const uint16_t *scale,
                            const uint32_t *words) {
  using Element = typename CodeT::Element;
  const Floats<From> d;
  const size_t lanes = hn::Lanes(d);
  if constexpr (!isScaled<CodeT>) {
    (void)scale;
    (void)words;
    forVectors(n, lanes, [&](size_t i, size_t count) HWY_ATTR {
      storeSome(Element(), d, loadSome(from, d, in + i, count), codes + i,
                count);
    });
  } else {
    const float value = fromBFloat16(*scale);
    if (!(value > 0)) { // zero or NaN
      std::memset(codes, 0, n);
      return;
    }
    const auto divisor = hn::Set(d, value);
    const auto largest = hn::Set(d, CodeT::largest);
    const auto least = hn::Set(d, -CodeT::largest);
    // The scale was rounded.
    auto limit = [&](auto v)
                     HWY_ATTR { return hn::Min(hn::Max(v, least), largest); };
    auto quotient = [&](size_t i, size_t count) HWY_ATTR {
      return limit(hn::Div(loadSome(from, d, in + i, count), divisor));
    };
    if (words) {
      forVectors(n, lanes, [&](size_t i, size_t count) HWY_ATTR {
        const auto v =
            roundStochastically<CodeT>(d, quotient(i, count), words + i);
        storeSome(Element(), d, v, codes + i, count);
      });
      return;
    }
    if (HWY_LIKELY(value >= 0x1p-64f && value <= 0x1p64f)) {
      const auto inverse = hn::Set(d, 1.0f / value);
      forVectors(n, lanes, [&](size_t i, size_t count) HWY_ATTR {
        const auto v = divide<CodeT>(d, loadSome(from, d, in + i, count),
                                     divisor, inverse);
        storeSome(Element(), d, limit(v), codes + i, count);
      });
      return;
    }
    forVectors(n, lanes, [&](size_t i, size_t count) HWY_ATTR {
      storeSome(Element(), d, quotient(i, count), codes + i, count);
    });
  }
}

/// Calls fn(words), with what encodeBlock() takes for a block of `n` elements
/// that begins with element `begin` of the array.
template <class CodeT, class Fn>
HWY_INLINE void withRandom(const std::optional<Rounding> &rounding,
                           size_t begin, size_t n, const Fn &fn) {
  if constexpr (isScaled<CodeT>) {
    if (rounding) {
      BlockWords block;
      fillRandom(*from(rounding, static_cast<int64_t>(begin)), n, block.words);
      return fn(static_cast<const uint32_t *>(block.words));
    }
  }
  fn(static_cast<const uint32_t *>(nullptr));
}

template <class CodeT>
HWY_INLINE float scaleValue(const uint16_t *scale) {
  return isScaled<CodeT> ? fromBFloat16(*scale) : 1.0f;
}

/// Calls fn(begin, count, vector) with the elements of a block's codes.
template <class CodeT, class D, class Fn>
HWY_INLINE void forDecoded(D d, const typename CodeT::Elem *codes,
                           const uint16_t *scale, size_t n, const Fn &fn) {
  const auto factor = hn::Set(d, scaleValue<CodeT>(scale));
  forVectors(n, hn::Lanes(d), [&](size_t i, size_t count) HWY_ATTR {
    auto v = loadSome(typename CodeT::Element(), d, codes + i, count);
    if constexpr (isScaled<CodeT>)
      v = hn::Mul(v, factor);
    fn(i, count, v);
  });
}

/// Calls fn(first element, elements, codes, scale) for all blocks. Packed codes
/// are unpacked before it, and packed after it, as `kReads` and `kWrites` say.
template <class CodeT, bool kReads, bool kWrites, class Fn>
HWY_INLINE void forBlocks(const EncodedArray &array, const Encoding &encoding,
                          size_t n, const Fn &fn) {
  const size_t block = static_cast<size_t>(blockOf(encoding));
  auto *codes = static_cast<typename CodeT::Elem *>(array.codes);
  auto *scale = static_cast<uint16_t *>(array.scales);
  for (size_t i = 0; i < n; i += block) {
    const size_t count = std::min(block, n - i);
    if constexpr (CodeT::kPacked) {
      HWY_ALIGN uint8_t buffer[Encoding::kMostBlock];
      if constexpr (kReads)
        unpack(codes + i / 2, count, buffer);
      fn(i, count, buffer, scale);
      if constexpr (kWrites)
        pack(buffer, count, codes + i / 2);
    } else {
      fn(i, count, codes + i, scale);
    }
    if constexpr (isScaled<CodeT>)
      ++scale;
  }
}

void encodeKernel(const void *in, Dtype inType, size_t n,
                  const Encoding &encoding, EncodedArray out,
                  const std::optional<Rounding> &rounding) {
  withElement(inType, [&](auto from) HWY_ATTR {
    using From = decltype(from);
    withCode(encoding.code, [&](auto code) HWY_ATTR {
      using CodeT = decltype(code);
      const auto *x = static_cast<const typename From::Elem *>(in);
      const size_t block = static_cast<size_t>(blockOf(encoding));
      forBlocks<CodeT, false, true>(
          out, encoding, n,
          [&](size_t i, size_t count, typename CodeT::Elem *codes,
              uint16_t *scale) HWY_ATTR {
            // A scale takes long to come out of a block's largest element:
            // meanwhile the block before is encoded.
            if (i == 0)
              findScale<CodeT>(from, x, count, scale);
            if (const size_t next = i + count; next < n)
              findScale<CodeT>(from, x + next, std::min(block, n - next),
                               scale + 1);
            withRandom<CodeT>(
                rounding, i, count, [&](const uint32_t *words) HWY_ATTR {
                  encodeBlock<CodeT>(from, x + i, count, codes, scale, words);
                });
          });
    });
  });
}

void decodeKernel(EncodedArray in, const Encoding &encoding, size_t n,
                  void *out, Dtype outType) {
  withElement(outType, [&](auto to) HWY_ATTR {
    using To = decltype(to);
    withCode(encoding.code, [&](auto code) HWY_ATTR {
      using CodeT = decltype(code);
      const Floats<To> d;
      auto *y = static_cast<typename To::Elem *>(out);
      forBlocks<CodeT, true, false>(
          in, encoding, n,
          [&](size_t begin, size_t size, const typename CodeT::Elem *codes,
              const uint16_t *scale) HWY_ATTR {
            forDecoded<CodeT>(d, codes, scale, size,
                              [&](size_t i, size_t count, auto v) HWY_ATTR {
                                storeSome(to, d, v, y + begin + i, count);
                              });
          });
    });
  });
}

void sumKernel(const EncodedArray *sources, int count, const Encoding &encoding,
               size_t n, int64_t divisor, EncodedArray out,
               const std::optional<Rounding> &rounding) {
  withCode(encoding.code, [&](auto code) HWY_ATTR {
    using CodeT = decltype(code);
    using Elem = typename CodeT::Elem;
    const hn::ScalableTag<float> d;
    const auto divisors = hn::Set(d, static_cast<float>(divisor));
    // By a power of two, that is a product with the same bits.
    const bool isPower = (divisor & (divisor - 1)) == 0;
    const auto inverses = hn::Set(d, 1.0f / static_cast<float>(divisor));
    // Of two blocks, in turns: see encodeKernel().
    HWY_ALIGN float bothSums[2][Encoding::kMostBlock];
    HWY_ALIGN uint8_t buffer[CodeT::kPacked ? Encoding::kMostBlock : 1];
    const size_t block = static_cast<size_t>(blockOf(encoding));
    // Adds what one more source has of a block, and finds the scale of the sum
    // when that was the last one.
    auto addSource = [&](auto isFirst, auto isLast, int number, size_t begin,
                         uint16_t *sumScale) HWY_ATTR {
      const size_t size = std::min(block, n - begin);
      float *const sums = bothSums[begin / block % 2];
      const auto *codes = static_cast<const Elem *>(sources[number].codes);
      const auto *scale = static_cast<const uint16_t *>(sources[number].scales);
      if constexpr (CodeT::kPacked) {
        unpack(codes + begin / 2, size, buffer);
        codes = buffer;
      } else {
        codes += begin;
      }
      if constexpr (isScaled<CodeT>)
        scale += begin / block;
      const bool isProduct = isPower;
      const auto factor = inverses, divisorOfAll = divisors;
      auto most = hn::Zero(Like<int32_t, decltype(d)>());
      forDecoded<CodeT>(
          d, codes, scale, size, [&](size_t i, size_t, auto v) HWY_ATTR {
            // Whole vectors: the array has room, blocks end with zeros.
            if constexpr (!decltype(isFirst)::value)
              v = hn::Add(hn::Load(d, sums + i), v);
            if constexpr (decltype(isLast)::value) {
              v = isProduct ? hn::Mul(v, factor) : hn::Div(v, divisorOfAll);
              most = hn::Max(most, magnitude(d, v));
            }
            hn::Store(v, d, sums + i);
          });
      if constexpr (decltype(isLast)::value && isScaled<CodeT>)
        *sumScale = scaleOfMost<CodeT>(most);
    };
    using Yes = std::true_type;
    using No = std::false_type;
    auto addBlock = [&](size_t begin, uint16_t *scale) HWY_ATTR {
      if (count == 1)
        return addSource(Yes(), Yes(), 0, begin, scale);
      addSource(Yes(), No(), 0, begin, scale);
      for (int number = 1; number < count - 1; ++number)
        addSource(No(), No(), number, begin, scale);
      addSource(No(), Yes(), count - 1, begin, scale);
    };
    forBlocks<CodeT, false, true>(
        out, encoding, n,
        [&](size_t i, size_t size, Elem *codes, uint16_t *scale) HWY_ATTR {
          if (i == 0)
            addBlock(0, scale);
          if (i + size < n)
            addBlock(i + size, scale + 1);
          withRandom<CodeT>(rounding, i, size,
                            [&](const uint32_t *words) HWY_ATTR {
                              encodeBlock<CodeT>(F32(), bothSums[i / block % 2],
                                                 size, codes, scale, words);
                            });
        });
  });
}

void errorKernel(const void *in, void *out, Dtype type, size_t n,
                 const Encoding &encoding,
                 const std::optional<Rounding> &rounding) {
  withElement(type, [&](auto element) HWY_ATTR {
    using Element = decltype(element);
    withCode(encoding.code, [&](auto code) HWY_ATTR {
      using CodeT = decltype(code);
      const Floats<Element> d;
      const auto *x = static_cast<const typename Element::Elem *>(in);
      auto *y = static_cast<typename Element::Elem *>(out);
      const size_t block = static_cast<size_t>(blockOf(encoding));
      HWY_ALIGN typename CodeT::Elem codes[Encoding::kMostBlock];
      uint16_t scale = 0;
      for (size_t begin = 0; begin < n; begin += block) {
        const size_t size = std::min(block, n - begin);
        findScale<CodeT>(element, x + begin, size, &scale);
        // A code needs no packing to be decoded again.
        withRandom<CodeT>(rounding, begin, size,
                          [&](const uint32_t *words) HWY_ATTR {
                            encodeBlock<CodeT>(element, x + begin, size, codes,
                                               &scale, words);
                          });
        forDecoded<CodeT>(
            d, codes, &scale, size,
            [&](size_t i, size_t count, auto v) HWY_ATTR {
              const size_t at = begin + i;
              // What became an infinity or a NaN is not fed back.
              auto storeLost = [&](auto dy, auto kept) HWY_ATTR {
                const auto lost =
                    hn::Sub(loadSome(element, dy, x + at, count), kept);
                storeSome(element, dy,
                          hn::IfThenElseZero(hn::IsFinite(kept), lost), y + at,
                          count);
              };
              if constexpr (std::is_same_v<Element, F64>) {
                const Like<double, decltype(d)> dd;
                storeLost(dd, hn::PromoteTo(dd, v));
              } else {
                storeLost(d, v);
              }
            });
      }
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
                 void *out, Dtype outType) {
  HWY_DYNAMIC_DISPATCH(decodeKernel)
  (in, encoding, static_cast<size_t>(n), out, outType);
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
