// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Represents casts and scaled codes as types: values in memory, largest value
// and packing. Also has loops over vectors of which the last may be short.

#if defined(DDPHOOK_KERNELS_CODES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DDPHOOK_KERNELS_CODES_INL_H
#undef DDPHOOK_KERNELS_CODES_INL_H
#else
#define DDPHOOK_KERNELS_CODES_INL_H
#endif

#include "base/encoding.h"
#include "elements-inl.h"

#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace ddphook::host::HWY_NAMESPACE {

/// Vectors of floats; as many as a vector of doubles has if the loop reads f64.
template <class Element>
using Floats = std::conditional_t<std::is_same_v<Element, F64>,
                                  Like<float, hn::ScalableTag<double>>,
                                  hn::ScalableTag<float>>;

/// Calls fn(begin, count) for all vectors of `n` elements; only the last one
/// may have fewer than `lanes`.
template <class Fn>
HWY_INLINE void forVectors(size_t n, size_t lanes, const Fn &fn) {
  size_t i = 0;
  HWY_UNROLL(4)
  for (; i + lanes <= n; i += lanes)
    fn(i, lanes);
  if (i < n)
    fn(i, n - i);
}

/// Whole numbers from -127 to 127, with the methods of elements-inl.h.
struct Int8 {
  using Elem = uint8_t;

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const Elem *p) {
    return widen(d, hn::LoadU(Like<uint8_t, D>(), p));
  }
  template <bool kStream, class D, class V>
  static HWY_INLINE void store(D d, V v, Elem *p) {
    hn::StoreU(narrow(d, v), Like<uint8_t, D>(), p);
  }

  template <class D, class V8>
  static HWY_INLINE hn::Vec<D> widen(D d, V8 codes) {
    const Like<int8_t, D> d8;
    const Like<int32_t, D> di;
    return hn::ConvertTo(d, hn::PromoteTo(di, hn::BitCast(d8, codes)));
  }
  template <class D, class V>
  static HWY_INLINE hn::Vec<Like<uint8_t, D>> narrow(D d, V v) {
    const Like<uint32_t, D> du;
    return hn::TruncateTo(Like<uint8_t, D>(), hn::BitCast(du, rounded(d, v)));
  }
  /// Rounds to nearest even by adding; the result is in the sum's lowest bits.
  template <class D, class V>
  static HWY_INLINE V rounded(D d, V v) {
    return hn::Add(v, hn::Set(d, 0x1.8p23f));
  }
};

/// Whole numbers from -7 to 7, two per byte, the first in the lower half.
struct Int4 {
  using Elem = uint8_t;

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const Elem *p) {
    const Like<uint8_t, D> d8;
    const hn::Repartition<uint16_t, decltype(d8)> d16;
    const auto byte =
        hn::PromoteTo(d16, hn::LoadU(Like<uint8_t, decltype(d16)>(), p));
    const auto both = hn::And(hn::Or(byte, hn::ShiftLeft<4>(byte)),
                              hn::Set(d16, uint16_t{0x0f0f}));
    const auto sign = hn::Set(d8, uint8_t{8});
    return Int8::widen(d, hn::Sub(hn::Xor(hn::BitCast(d8, both), sign), sign));
  }
  template <bool kStream, class D, class V>
  static HWY_INLINE void store(D d, V v, Elem *p) {
    storePacked(Like<uint8_t, D>(), Int8::narrow(d, v), p);
  }

  template <class D8, class V8>
  static HWY_INLINE void storePacked(D8, V8 codes, Elem *p) {
    const hn::Repartition<uint16_t, D8> d16;
    const Like<uint8_t, decltype(d16)> half;
    const auto both = hn::BitCast(d16, codes);
    const auto lower = hn::And(both, hn::Set(d16, uint16_t{0x000f}));
    const auto upper =
        hn::And(hn::ShiftRight<4>(both), hn::Set(d16, uint16_t{0x00f0}));
    hn::StoreU(hn::TruncateTo(half, hn::Or(lower, upper)), half, p);
  }
};

// A code type provides its values in memory as an element class, the number of
// codes in one `Elem`, and the largest value.

template <class ElementT, size_t kCodes = 1>
struct CodeOf {
  using Element = ElementT;
  using Elem = typename Element::Elem;
  static constexpr size_t kInElem = kCodes;

  template <class D>
  static HWY_INLINE hn::Vec<D> loadUnits(D d, const Elem *p) {
    return Element::load(d, p);
  }
};
struct CastF16 : CodeOf<F16> {
  static constexpr float largest = 0;
};
struct CastBF16 : CodeOf<BF16> {
  static constexpr float largest = 0;
};

// A scaled code type also decodes codes to units of value `kUnit`, and finds
// the code nearest to the quotient of an element. The quotient must not exceed
// the largest code by half of the distance to the next code.

/// Codes that are whole numbers.
struct WholeNumbers {
  static constexpr bool kIsFloat = false;
  static constexpr float kUnit = 1;

  /// Returns the code in the lowest bits.
  template <class D, class V>
  static HWY_INLINE hn::Vec<Like<uint32_t, D>> nearest(D d, V quotient, V) {
    return hn::BitCast(Like<uint32_t, D>(), Int8::rounded(d, quotient));
  }
  /// Returns the value of the nearest code.
  template <class D, class V>
  static HWY_INLINE V nearestValue(D d, V quotient, V) {
    return hn::Sub(Int8::rounded(d, quotient), Int8::rounded(d, hn::Zero(d)));
  }
};

/// Codes that are floats.
template <int kFraction, int kLeast>
struct SmallFloats {
  static constexpr bool kIsFloat = true;
  static constexpr int kLeastExponent = kLeast, kFractionBits = kFraction;

  /// Returns the code in the lowest bits, with the sign of `element`.
  template <class D, class V>
  static HWY_INLINE hn::Vec<Like<uint32_t, D>> nearest(D d, V quotient,
                                                       V element) {
    const Like<uint32_t, D> du;
    const auto exponent = exponentOf(d, quotient);
    const auto sum = hn::Add(hn::Abs(quotient), unitOf(d, exponent));
    const auto code =
        hn::Add(hn::BitCast(du, sum), hn::ShiftRight<kShift>(exponent));
    const auto sign = hn::ShiftRight<24>(hn::BitCast(du, element));
    return hn::Or(hn::And(sign, hn::Set(du, 0x80u)), code);
  }
  /// Returns the value of the nearest code.
  template <class D, class V>
  static HWY_INLINE V nearestValue(D d, V quotient, V element) {
    const auto unit = unitOf(d, exponentOf(d, quotient));
    return hn::CopySign(hn::Sub(hn::Add(hn::Abs(quotient), unit), unit),
                        element);
  }

private:
  static constexpr int kShift = 23 - kFraction;
  static constexpr uint32_t kLeastBits = uint32_t(127 + kLeast) << 23;

  /// Returns the exponent bits of the codes next to a quotient.
  template <class D, class V>
  static HWY_INLINE hn::Vec<Like<uint32_t, D>> exponentOf(D, V quotient) {
    const Like<uint32_t, D> du;
    return hn::Max(hn::And(hn::BitCast(du, quotient), hn::Set(du, 0x7f800000u)),
                   hn::Set(du, kLeastBits));
  }
  /// Returns the addend for a sum whose last place is the distance of these
  /// codes, which rounds to them. The lowest bits of the sum count the codes
  /// with this exponent, from a number that, with kShift bits of the exponent,
  /// makes them codes; it is even, which preserves ties.
  template <class D, class VU>
  static HWY_INLINE hn::Vec<D> unitOf(D d, VU exponent) {
    const Like<uint32_t, D> du;
    constexpr uint32_t kFirst = -(kLeastBits >> kShift) & 0xff;
    static_assert(kFirst % 2 == 0);
    return hn::BitCast(
        d, hn::Add(exponent, hn::Set(du, (uint32_t(kShift) << 23) + kFirst)));
  }
};

struct ScaledI8 : CodeOf<Int8>, WholeNumbers {
  static constexpr float largest = 127;
};
struct ScaledI4 : CodeOf<Int4, 2>, WholeNumbers {
  static constexpr float largest = 7;
};
struct ScaledF8E4M3FN : CodeOf<F8E4M3FN>, SmallFloats<3, -6> {
  static constexpr float largest = 448;
#if DDPHOOK_NATIVE_F16
  static constexpr float kUnit = 256;

  /// Converts codes to halves, whose exponents are biased by 8 more.
  template <class D>
  static HWY_INLINE hn::Vec<D> loadUnits(D d, const uint8_t *p) {
    const Like<int16_t, D> d16;
    const auto wide = hn::PromoteTo(
        d16, hn::BitCast(Like<int8_t, D>(), hn::LoadU(Like<uint8_t, D>(), p)));
    const auto half =
        hn::And(hn::ShiftLeft<7>(wide), hn::Set(d16, int16_t(0xbf80)));
    // The sum carries into the highest exponent bit only if all bits of the
    // magnitude are set; this makes the value a NaN.
    const auto isNaN = hn::And(hn::Add(half, hn::Set(d16, int16_t{0x80})),
                               hn::Set(d16, int16_t{0x4000}));
    return hn::PromoteTo(
        d, hn::BitCast(Like<hwy::float16_t, D>(), hn::Or(half, isNaN)));
  }
#else
  static constexpr float kUnit = 1;
#endif
};
struct ScaledF8E5M2 : CodeOf<F8E5M2>, SmallFloats<2, -14> {
  static constexpr float largest = 57344;
  static constexpr float kUnit = 1;

#if DDPHOOK_NATIVE_F16
  template <class D>
  static HWY_INLINE hn::Vec<D> loadUnits(D d, const uint8_t *p) {
    const Like<uint16_t, D> d16;
    const auto wide = hn::PromoteTo(d16, hn::LoadU(Like<uint8_t, D>(), p));
    return hn::PromoteTo(
        d, hn::BitCast(Like<hwy::float16_t, D>(), hn::ShiftLeft<8>(wide)));
  }
#endif
};

template <class CodeT>
constexpr bool isScaled = CodeT::largest > 0;

/// The value of one unit of CodeT::loadUnits(); arbitrary for casts.
template <class CodeT>
constexpr float unitOf() {
  if constexpr (isScaled<CodeT>)
    return CodeT::kUnit;
  else
    return 1;
}

template <class Fn>
HWY_INLINE void withCode(Code code, const Fn &fn) {
  switch (code) {
  case Code::F16:
    return fn(CastF16());
  case Code::BF16:
    return fn(CastBF16());
  case Code::I8:
    return fn(ScaledI8());
  case Code::I4:
    return fn(ScaledI4());
  case Code::F8E4M3FN:
    return fn(ScaledF8E4M3FN());
  case Code::F8E5M2:
    return fn(ScaledF8E5M2());
  case Code::UI8:
  case Code::UI1:
    return; // see affine.cpp
  }
}

/// Returns the address of code `i`, which starts one of the array's `Elem`s.
template <class CodeT, class Elem>
HWY_INLINE Elem *codeAt(Elem *codes, size_t i) {
  return codes + i / CodeT::kInElem;
}

/// Decodes the codes of a block. Casts have no scale.
template <class CodeT, class D>
struct Decoder {
  using Elem = typename CodeT::Elem;
  using V = hn::Vec<D>;

  HWY_INLINE Decoder(D d, float scale)
      : factor(hn::Set(d, scale * unitOf<CodeT>())) {}

  /// Returns a vector of elements.
  HWY_INLINE V load(D d, const Elem *codes) const {
    if constexpr (isScaled<CodeT>)
      return hn::Mul(CodeT::loadUnits(d, codes), factor);
    else
      return CodeT::Element::load(d, codes);
  }
  /// Returns the first `count` elements, followed by zeros.
  HWY_INLINE V loadSome(D d, const Elem *codes, size_t count) const {
    if (HWY_LIKELY(count == hn::Lanes(d)))
      return load(d, codes);
    HWY_ALIGN Elem buffer[hn::MaxLanes(D())] = {};
    std::memcpy(buffer, codes,
                hwy::DivCeil(count, CodeT::kInElem) * sizeof(*codes));
    return hn::IfThenElseZero(hn::FirstN(d, count), load(d, buffer));
  }
  /// Returns the sum of the elements and `addend`. The scale must be usual:
  /// then no product needs rounding.
  HWY_INLINE V loadAndAdd(D d, const Elem *codes, V addend) const {
    return hn::MulAdd(CodeT::loadUnits(d, codes), factor, addend);
  }

  V factor;
};

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
/// A vector can hold the values of all codes.
template <>
struct Decoder<ScaledI4, hn::ScalableTag<float>> {
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;

  HWY_INLINE Decoder(D d, float scale) {
    HWY_ALIGN static constexpr float values[16] = {
        0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1};
    elements = hn::Mul(hn::Load(d, values), hn::Set(d, scale));
  }

  HWY_INLINE V load(D d, const uint8_t *codes) const {
    const Like<uint32_t, D> du;
    const Like<int32_t, D> di;
    HWY_ALIGN static constexpr uint32_t places[16] = {
        0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28};
    uint32_t halves[2];
    std::memcpy(halves, codes, sizeof(halves));
    const auto words = hn::ConcatUpperLower(du, hn::Set(du, halves[1]),
                                            hn::Set(du, halves[0]));
    const auto lowest =
        hn::And(hn::Shr(words, hn::Load(du, places)), hn::Set(du, 15u));
    return hn::TableLookupLanes(elements,
                                hn::IndicesFromVec(d, hn::BitCast(di, lowest)));
  }
  HWY_INLINE V loadSome(D d, const uint8_t *codes, size_t count) const {
    if (HWY_LIKELY(count == hn::Lanes(d)))
      return load(d, codes);
    uint8_t buffer[8] = {};
    std::memcpy(buffer, codes, hwy::DivCeil(count, size_t{2}));
    return hn::IfThenElseZero(hn::FirstN(d, count), load(d, buffer));
  }
  HWY_INLINE V loadAndAdd(D d, const uint8_t *codes, V addend) const {
    return hn::Add(load(d, codes), addend);
  }

  V elements;
};
#endif

/// Stores the first `count` codes; the next lane may fill up the last byte.
template <class CodeT, class D, class V>
HWY_INLINE void storeCodes(D d, V v, typename CodeT::Elem *codes,
                           size_t count) {
  using Element = typename CodeT::Element;
  if (HWY_LIKELY(count == hn::Lanes(d)))
    return Element::template store<false>(d, v, codes);
  HWY_ALIGN typename CodeT::Elem buffer[hn::MaxLanes(D())];
  Element::template store<false>(d, v, buffer);
  std::memcpy(codes, buffer,
              hwy::DivCeil(count, CodeT::kInElem) * sizeof(*codes));
}

template <class Element, class D, class V>
HWY_INLINE void storeSome(Element, D d, V v, typename Element::Elem *p,
                          size_t count) {
  storeCodes<CodeOf<Element>>(d, v, p, count);
}

/// Stores the lowest bits of `count` lanes as codes.
template <class CodeT, class D, class VU>
HWY_INLINE void storeLowest(D, VU bits, uint8_t *codes, size_t count) {
  const Like<uint8_t, D> d8;
  const auto bytes = hn::TruncateTo(d8, bits);
  HWY_ALIGN uint8_t buffer[hn::MaxLanes(D())];
  uint8_t *to = HWY_LIKELY(count == hn::Lanes(d8)) ? codes : buffer;
  if constexpr (std::is_same_v<CodeT, ScaledI4>)
    Int4::storePacked(d8, bytes, to);
  else
    hn::StoreU(bytes, d8, to);
  if (HWY_UNLIKELY(to == buffer))
    std::memcpy(codes, buffer, hwy::DivCeil(count, CodeT::kInElem));
}

/// Stores the lowest bits of four vectors, contiguously.
template <class CodeT, class D, class VU>
HWY_INLINE void storeFour(D d, VU v0, VU v1, VU v2, VU v3, uint8_t *codes) {
  const size_t lanes = hn::Lanes(d);
#if HWY_TARGET != HWY_SCALAR
  if constexpr (std::is_same_v<D, hn::ScalableTag<float>> &&
                HWY_MAX_BYTES > 16 &&
                (HWY_MAX_BYTES < 64 || CodeT::kInElem > 1)) {
    // Picking every other part of two vectors is cheaper than narrowing each if
    // narrowing takes more than one instruction.
    const hn::Repartition<uint16_t, D> d16;
    const hn::Repartition<uint8_t, D> d8;
    auto lowerHalves = [&](VU a, VU b) HWY_ATTR {
      return hn::BitCast(
          d8, hn::ConcatEven(d16, hn::BitCast(d16, b), hn::BitCast(d16, a)));
    };
    const auto bytes =
        hn::ConcatEven(d8, lowerHalves(v2, v3), lowerHalves(v0, v1));
    if constexpr (std::is_same_v<CodeT, ScaledI4>)
      return Int4::storePacked(d8, bytes, codes);
    else
      return hn::StoreU(bytes, d8, codes);
  }
#endif
  storeLowest<CodeT>(d, v0, codes, lanes);
  storeLowest<CodeT>(d, v1, codeAt<CodeT>(codes, lanes), lanes);
  storeLowest<CodeT>(d, v2, codeAt<CodeT>(codes, 2 * lanes), lanes);
  storeLowest<CodeT>(d, v3, codeAt<CodeT>(codes, 3 * lanes), lanes);
}

} // namespace ddphook::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif // DDPHOOK_KERNELS_CODES_INL_H
