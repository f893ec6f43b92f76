//===- codes-inl.h - codes of a few bits, and how they lie ------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Casts and scaled codes as types: their values in memory, the largest one, and
// how they are packed. And loops over vectors of which the last may be short.
//
// Included once per instruction set by Highway's foreach_target.h; everything
// is in HWY_NAMESPACE.
//
//===----------------------------------------------------------------------===//
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

/// Floats, as many as a vector of doubles has when the loop reads f64.
template <class Element>
using Floats = std::conditional_t<std::is_same_v<Element, F64>,
                                  Like<float, hn::ScalableTag<double>>,
                                  hn::ScalableTag<float>>;

/// Calls fn(begin, count) for all vectors of `n` elements; only the last one
/// may have less than `lanes`.
template <class Fn>
HWY_INLINE void forVectors(size_t n, size_t lanes, const Fn &fn) {
  size_t i = 0;
  HWY_UNROLL(4)
  for (; i + lanes <= n; i += lanes)
    fn(i, lanes);
  if (i < n)
    fn(i, n - i);
}

template <class Element, class D, class V>
HWY_INLINE void storeSome(Element, D d, V v, typename Element::Elem *p,
                          size_t count) {
  if (HWY_LIKELY(count == hn::Lanes(d)))
    return Element::template store<false>(d, v, p);
  HWY_ALIGN typename Element::Elem buffer[hn::MaxLanes(D())];
  Element::template store<false>(d, v, buffer);
  std::memcpy(p, buffer, count * sizeof(*p));
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
  /// To nearest even, as an addition rounds: then they are the lowest bits of
  /// the sum.
  template <class D, class V>
  static HWY_INLINE V rounded(D d, V v) {
    return hn::Add(v, hn::Set(d, 0x1.8p23f));
  }

  /// Four vectors, one behind the other.
  template <class D, class V>
  static HWY_INLINE auto narrowFour(D d, V v0, V v1, V v2, V v3) {
    // Picking every other part of two vectors is cheaper than narrowing each.
    const hn::Repartition<uint16_t, D> d16;
    const hn::Repartition<uint8_t, D> d8;
    auto lowerHalves = [&](V a, V b) HWY_ATTR {
      return hn::BitCast(d8,
                         hn::ConcatEven(d16, hn::BitCast(d16, rounded(d, b)),
                                        hn::BitCast(d16, rounded(d, a))));
    };
    return hn::ConcatEven(d8, lowerHalves(v2, v3), lowerHalves(v0, v1));
  }
};

/// Whole numbers from -7 to 7, two in a byte, the first one in its lower half.
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

/// Stores four vectors, one behind the other.
template <class Element, class D, class V>
HWY_INLINE void storeFour(Element, D d, V v0, V v1, V v2, V v3,
                          typename Element::Elem *p, size_t elems) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (std::is_same_v<D, hn::ScalableTag<float>> &&
                HWY_MAX_BYTES > 16) {
    const hn::Repartition<uint8_t, D> d8;
    if constexpr (std::is_same_v<Element, Int8>)
      return hn::StoreU(Int8::narrowFour(d, v0, v1, v2, v3), d8, p);
    if constexpr (std::is_same_v<Element, Int4>)
      return Int4::storePacked(d8, Int8::narrowFour(d, v0, v1, v2, v3), p);
  }
#endif
  Element::template store<false>(d, v0, p);
  Element::template store<false>(d, v1, p + elems);
  Element::template store<false>(d, v2, p + 2 * elems);
  Element::template store<false>(d, v3, p + 3 * elems);
}

// What follows knows of a code: its values in memory as an element class, how
// many of them are in one of its `Elem`s, and the largest one.

template <class ElementT, size_t kCodes = 1>
struct CodeOf {
  using Element = ElementT;
  using Elem = typename Element::Elem;
  static constexpr size_t kInElem = kCodes;
};
struct CastF16 : CodeOf<F16> {
  static constexpr float largest = 0;
};
struct CastBF16 : CodeOf<BF16> {
  static constexpr float largest = 0;
};
struct ScaledI8 : CodeOf<Int8> {
  static constexpr float largest = 127;
  static constexpr bool kIsFloat = false;
};
struct ScaledF8E4M3FN : CodeOf<F8E4M3FN> {
  static constexpr float largest = 448;
  static constexpr bool kIsFloat = true;
  static constexpr int kLeastExponent = -6, kFractionBits = 3;
};
struct ScaledF8E5M2 : CodeOf<F8E5M2> {
  static constexpr float largest = 57344;
  static constexpr bool kIsFloat = true;
  static constexpr int kLeastExponent = -14, kFractionBits = 2;
};
struct ScaledI4 : CodeOf<Int4, 2> {
  static constexpr float largest = 7;
  static constexpr bool kIsFloat = false;
};

template <class CodeT>
constexpr bool isScaled = CodeT::largest > 0;

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
    return; // affine.cpp
  }
}

/// Where code `i` of an array lies; it begins one of its `Elem`s.
template <class CodeT, class Elem>
HWY_INLINE Elem *codeAt(Elem *codes, size_t i) {
  return codes + i / CodeT::kInElem;
}

/// `count` codes as floats, and zeros.
template <class CodeT, class D>
HWY_INLINE hn::Vec<D> loadCodes(D d, const typename CodeT::Elem *codes,
                                size_t count) {
  using Element = typename CodeT::Element;
  if (HWY_LIKELY(count == hn::Lanes(d)))
    return Element::load(d, codes);
  HWY_ALIGN typename CodeT::Elem buffer[hn::MaxLanes(D())] = {};
  std::memcpy(buffer, codes,
              hwy::DivCeil(count, CodeT::kInElem) * sizeof(*codes));
  return hn::IfThenElseZero(hn::FirstN(d, count), Element::load(d, buffer));
}

/// Stores the first `count` codes; beside an odd last one is what follows it.
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

} // namespace ddphook::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif // DDPHOOK_KERNELS_CODES_INL_H
