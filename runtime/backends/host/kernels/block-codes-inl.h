// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A block is read twice: for its largest element and, some blocks later, for
// its codes; the second read hits the first-level cache.

#if defined(DDPHOOK_KERNELS_BLOCK_CODES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DDPHOOK_KERNELS_BLOCK_CODES_INL_H
#undef DDPHOOK_KERNELS_BLOCK_CODES_INL_H
#else
#define DDPHOOK_KERNELS_BLOCK_CODES_INL_H
#endif

#include "base/rounding.h"
#include "codes-inl.h"
#include "encode.h"
#include "scales-inl.h"

#include <cstring>
#include <optional>

HWY_BEFORE_NAMESPACE();
namespace ddphook::host::HWY_NAMESPACE {

/// Computes the upper and lower halves of a * factor.
template <class D, class V>
HWY_INLINE void multiply(D d, V a, uint32_t factor, V &high, V &low) {
  const hn::RepartitionToWide<D> wide;
  const auto factors = hn::Set(d, factor);
  const auto even = hn::MulEven(a, factors);
  const auto upper = hn::ShiftRight<32>(hn::BitCast(wide, a));
  const auto odd = hn::MulEven(hn::BitCast(d, upper), factors);
  high = hn::OddEven(hn::BitCast(d, odd),
                     hn::BitCast(d, hn::ShiftRight<32>(even)));
  low =
      hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even));
}

/// The number of words written at a time, on every instruction set.
constexpr size_t kRandomWords = 4 * hn::MaxLanes(hn::ScalableTag<uint32_t>());

/// Writes the words of `n` elements from number `rounding.first` on: element i
/// gets word i mod 4 of counter i / 4. Writes up to kRandomWords - 1 more
/// words. `out` must be aligned. Implements Philox4x32-10 of Salmon, Moraes,
/// Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011): four
/// 32-bit words for each 128-bit counter, in any order.
HWY_INLINE void fillRandom(const Rounding &rounding, size_t n, uint32_t *out) {
  const hn::ScalableTag<uint32_t> d;
  const size_t lanes = hn::Lanes(d);
  for (size_t i = 0; i < n; i += 4 * lanes) {
    // If the lower word wraps within a vector, the upper word is one larger.
    const auto counter = (static_cast<uint64_t>(rounding.first) + i) / 4;
    const auto low = static_cast<uint32_t>(counter);
    auto x0 = hn::Add(hn::Set(d, low), hn::Iota(d, 0));
    auto x1 = hn::Set(d, static_cast<uint32_t>(counter >> 32));
    x1 = hn::Sub(x1, hn::VecFromMask(d, hn::Lt(x0, hn::Set(d, low))));
    auto x2 = hn::Set(d, rounding.step);
    auto x3 = hn::Set(d, rounding.lane);
    auto key0 = static_cast<uint32_t>(rounding.stream);
    auto key1 = static_cast<uint32_t>(rounding.stream >> 32);
    HWY_UNROLL(10)
    for (int round = 0; round < 10; ++round) {
      decltype(x0) high0, low0, high2, low2;
      multiply(d, x0, 0xd2511f53u, high0, low0);
      multiply(d, x2, 0xcd9e8d57u, high2, low2);
      x0 = hn::Xor(hn::Xor(high2, x1), hn::Set(d, key0));
      x1 = low2;
      x2 = hn::Xor(hn::Xor(high0, x3), hn::Set(d, key1));
      x3 = low0;
      key0 += 0x9e3779b9u;
      key1 += 0xbb67ae85u;
    }
    hn::StoreInterleaved4(x0, x1, x2, x3, d, out + i);
  }
}

/// Rounds each magnitude down or up to a code by the random words from `words`
/// on. The probability of rounding up is the fraction above the lower code.
template <class CodeT, class D, class V>
HWY_INLINE V roundStochastically(D d, V v, const uint32_t *words) {
  const Like<uint32_t, D> du;
  const Like<int32_t, D> di;
  auto steps = hn::Abs(v);
  auto step = hn::Set(d, 1.0f);
  if constexpr (CodeT::kIsFloat) {
    // The distance between codes is a power of two, and so is its inverse.
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

/// Returns magnitudes that include the largest of a block of `n` elements.
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

/// The nearest codes of a block with a usual scale. The scale was rounded by at
/// most 2^-8 of its value, so the largest quotient exceeds the largest code by
/// less than half a code and is rounded to it: nothing needs to be clamped.
template <class CodeT, class From>
class NearestCodes {
  using D = Floats<From>;
  using Elem = typename From::Elem;

public:
  HWY_INLINE NearestCodes(const Elem *in, uint8_t *codes,
                          const BlockScale &scale)
      : in(in), codes(codes), quotients(D(), scale) {}

  /// Stores the codes of `kVectors` vectors from element `i` on.
  template <size_t kVectors>
  HWY_INLINE void storeAt(size_t i) const {
    const D d;
    const size_t lanes = hn::Lanes(d);
    auto *place = codeAt<CodeT>(codes, i);
    if constexpr (kVectors == 4) {
      storeFour<CodeT>(d, at(i), at(i + lanes), at(i + 2 * lanes),
                       at(i + 3 * lanes), place);
    } else {
      HWY_UNROLL(4)
      for (size_t k = 0; k < kVectors; ++k)
        storeLowest<CodeT>(d, at(i + k * lanes),
                           codeAt<CodeT>(place, k * lanes), lanes);
    }
  }
  /// Stores all `n` codes.
  HWY_INLINE void storeAll(From from, size_t n) const {
    const D d;
    const size_t lanes = hn::Lanes(d);
    size_t i = 0;
    for (; i + 4 * lanes <= n; i += 4 * lanes)
      storeAt<4>(i);
    forVectors(n - i, lanes, [&](size_t k, size_t count) HWY_ATTR {
      storeLowest<CodeT>(d, of(loadSome(from, d, in + i + k, count)),
                         codeAt<CodeT>(codes, i + k), count);
    });
  }

private:
  HWY_INLINE auto of(hn::Vec<D> v) const {
    return CodeT::nearest(D(), quotients.of(v), v);
  }
  HWY_INLINE auto at(size_t i) const { return of(From::load(D(), in + i)); }

  const Elem *const in;
  uint8_t *const codes;
  const Quotients<D> quotients;
};

/// Encodes a block of `n` elements and returns magnitudes of another block, the
/// largest of which is that block's largest. next.load(i, vectors) loads
/// `kVectors` vectors of the other block.
template <size_t kVectors, class CodeT, class From, class Next>
HWY_INLINE auto encodeAndFindBy(const NearestCodes<CodeT, From> &nearest,
                                size_t n, const Next &next) {
  const Floats<From> d;
  const size_t lanes = hn::Lanes(d);
  auto even = hn::Zero(Like<int32_t, decltype(d)>()), odd = even;
  for (size_t i = 0; i < n; i += kVectors * lanes) {
    nearest.template storeAt<kVectors>(i);
    hn::Vec<decltype(d)> vectors[kVectors];
    next.template load<kVectors>(i, vectors);
    HWY_UNROLL(2)
    for (size_t k = 0; k < kVectors; k += 2) {
      even = hn::Max(even, magnitude(d, vectors[k]));
      odd = hn::Max(odd, magnitude(d, vectors[k + 1]));
    }
  }
  return hn::Max(even, odd);
}

template <class CodeT, class From, class Next>
HWY_INLINE auto encodeAndFind(const NearestCodes<CodeT, From> &nearest,
                              size_t n, const Next &next) {
  constexpr size_t kLanes = hn::MaxLanes(Floats<From>());
  static_assert(Encoding::kLeastBlock % (2 * kLanes) == 0);
  if constexpr (Encoding::kLeastBlock % (4 * kLanes) != 0) {
    if (n % (4 * kLanes) != 0)
      return encodeAndFindBy<2>(nearest, n, next);
  }
  return encodeAndFindBy<4>(nearest, n, next);
}

/// Computes the codes of a block with any scale, with random words unless
/// `words` is null. Not inlined: few blocks need it, and it has much code.
template <class CodeT, class From>
HWY_NOINLINE void encodeUnusual(From from, const typename From::Elem *in,
                                size_t n, typename CodeT::Elem *codes,
                                float scale, const uint32_t *words) {
  const Floats<From> d;
  if (!(scale > 0)) { // zero or NaN
    std::memset(codes, 0, hwy::DivCeil(n, CodeT::kInElem));
    return;
  }
  const auto divisor = hn::Set(d, scale);
  const auto largest = hn::Set(d, CodeT::largest);
  const auto least = hn::Set(d, -CodeT::largest);
  forVectors(n, hn::Lanes(d), [&](size_t i, size_t count) HWY_ATTR {
    // The scale was rounded, so quotients may exceed the largest code.
    auto v = hn::Div(loadSome(from, d, in + i, count), divisor);
    v = hn::Min(hn::Max(v, least), largest);
    if (words)
      v = roundStochastically<CodeT>(d, v, words + i);
    storeCodes<CodeT>(d, v, codeAt<CodeT>(codes, i), count);
  });
}

/// Computes the codes of a block with the given scale; `words` may be null.
template <class CodeT, class From>
HWY_INLINE void encodeBlock(From from, const typename From::Elem *in, size_t n,
                            typename CodeT::Elem *codes,
                            const BlockScale &scale, const uint32_t *words) {
  if constexpr (!isScaled<CodeT>) {
    const Floats<From> d;
    forVectors(n, hn::Lanes(d), [&](size_t i, size_t count) HWY_ATTR {
      storeCodes<CodeT>(d, loadSome(from, d, in + i, count), codes + i, count);
    });
  } else {
    if (HWY_LIKELY(!words && isUsual(scale.value)))
      return NearestCodes<CodeT, From>(in, codes, scale).storeAll(from, n);
    encodeUnusual<CodeT>(from, in, n, codes, scale.value, words);
  }
}

/// Returns the random words for encodeBlock(), for a block of `n` elements that
/// starts at element `begin` of the array, or null.
template <class CodeT>
HWY_INLINE const uint32_t *randomWords(const std::optional<Rounding> &rounding,
                                       size_t begin, size_t n,
                                       BlockWords &room) {
  if (!isScaled<CodeT> || HWY_LIKELY(!rounding))
    return nullptr;
  fillRandom(*from(rounding, static_cast<int64_t>(begin)), n, room.words);
  return room.words;
}

HWY_INLINE uint16_t *scalesOf(const EncodedArray &array) {
  return static_cast<uint16_t *>(array.scales);
}

/// Returns the scale of a block; casts have none.
template <class CodeT>
HWY_INLINE float scaleAt(const EncodedArray &array, size_t index) {
  return isScaled<CodeT> ? fromBFloat16(scalesOf(array)[index]) : 1.0f;
}

/// Returns the codes of an array from element `begin` on, which starts a block.
template <class CodeT>
HWY_INLINE typename CodeT::Elem *codesFrom(const EncodedArray &array,
                                           size_t begin) {
  return codeAt<CodeT>(static_cast<typename CodeT::Elem *>(array.codes), begin);
}

/// Calls fn(begin, count, vector) for the decoded elements of a block.
template <class CodeT, class D, class Fn>
HWY_INLINE void forDecoded(D d, const typename CodeT::Elem *codes, float scale,
                           size_t n, const Fn &fn) {
  const Decoder<CodeT, D> decoder(d, scale);
  forVectors(n, hn::Lanes(d), [&](size_t i, size_t count) HWY_ATTR {
    fn(i, count, decoder.loadSome(d, codeAt<CodeT>(codes, i), count));
  });
}

/// Encodes one block, which starts at element `begin` of an array.
template <class CodeT, class From>
HWY_INLINE void encodeInto(EncodedArray out, From from,
                           const typename From::Elem *in, size_t begin,
                           size_t n, const BlockScale &scale,
                           const std::optional<Rounding> &rounding) {
  BlockWords room;
  const uint32_t *words = randomWords<CodeT>(rounding, begin, n, room);
  encodeBlock<CodeT>(from, in, n, codesFrom<CodeT>(out, begin), scale, words);
}

} // namespace ddphook::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif // include guard, toggled for every instruction set
