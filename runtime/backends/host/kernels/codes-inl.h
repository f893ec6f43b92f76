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
    const Like<int8_t, D> d8;
    const Like<int32_t, D> di;
    return hn::ConvertTo(
        d,
        hn::PromoteTo(di, hn::BitCast(d8, hn::LoadU(Like<uint8_t, D>(), p))));
  }
  /// To nearest even, as an addition rounds: then they are the lowest bits of
  /// the sum.
  template <bool kStream, class D, class V>
  static HWY_INLINE void store(D d, V v, Elem *p) {
    const Like<uint32_t, D> du;
    const Like<uint8_t, D> d8;
    hn::StoreU(hn::TruncateTo(d8, hn::BitCast(du, rounded(d, v))), d8, p);
  }

  template <class D, class V>
  static HWY_INLINE V rounded(D d, V v) {
    return hn::Add(v, hn::Set(d, 0x1.8p23f));
  }
};

/// Stores four vectors, one behind the other.
template <class Element, class D, class V>
HWY_INLINE void storeFour(Element, D d, V v0, V v1, V v2, V v3,
                          typename Element::Elem *p) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (std::is_same_v<Element, Int8> &&
                std::is_same_v<D, hn::ScalableTag<float>> &&
                HWY_MAX_BYTES > 16) {
    // Picking every other part of two vectors is cheaper than narrowing each.
    const hn::Repartition<uint16_t, D> d16;
    const hn::Repartition<uint8_t, D> d8;
    auto lowerHalves = [&](V a, V b) HWY_ATTR {
      return hn::ConcatEven(d16, hn::BitCast(d16, Int8::rounded(d, b)),
                            hn::BitCast(d16, Int8::rounded(d, a)));
    };
    hn::StoreU(hn::ConcatEven(d8, hn::BitCast(d8, lowerHalves(v2, v3)),
                              hn::BitCast(d8, lowerHalves(v0, v1))),
               d8, p);
    return;
  }
#endif
  const size_t lanes = hn::Lanes(d);
  Element::template store<false>(d, v0, p);
  Element::template store<false>(d, v1, p + lanes);
  Element::template store<false>(d, v2, p + 2 * lanes);
  Element::template store<false>(d, v3, p + 3 * lanes);
}

// What follows knows of a code: its values in memory as an element class, the
// largest one, and how a block of them is packed.

template <class ElementT>
struct Unpacked {
  using Element = ElementT;
  using Elem = typename Element::Elem;
  static constexpr bool kPacked = false;
};
struct CastF16 : Unpacked<F16> {
  static constexpr float largest = 0;
};
struct CastBF16 : Unpacked<BF16> {
  static constexpr float largest = 0;
};
struct ScaledI8 : Unpacked<Int8> {
  static constexpr float largest = 127;
  static constexpr bool kIsFloat = false;
};
struct ScaledF8E4M3FN : Unpacked<F8E4M3FN> {
  static constexpr float largest = 448;
  static constexpr bool kIsFloat = true;
  static constexpr int kLeastExponent = -6, kFractionBits = 3;
};
struct ScaledF8E5M2 : Unpacked<F8E5M2> {
  static constexpr float largest = 57344;
  static constexpr bool kIsFloat = true;
  static constexpr int kLeastExponent = -14, kFractionBits = 2;
};
/// Two codes in a byte, the first one in its lower half.
struct ScaledI4 {
  using Element = Int8;
  using Elem = uint8_t;
  static constexpr bool kPacked = true;
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

/// Codes that are packed at a time: two vectors are the smallest block.
template <class T>
using PackTag = hn::CappedTag<T, DDPHOOK_BLOCK_UNIT / 2>;

/// Packs `n` codes; an odd last one has zero beside it.
HWY_INLINE void pack(const uint8_t *in, size_t n, uint8_t *out) {
  const PackTag<uint8_t> d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    hn::Vec<decltype(d)> even, odd;
    hn::LoadInterleaved2(d, in + i, even, odd);
    hn::StoreU(hn::Or(hn::And(even, hn::Set(d, 15)), hn::ShiftLeft<4>(odd)), d,
               out + i / 2);
  }
  for (; i < n; i += 2) {
    const unsigned odd = i + 1 < n ? in[i + 1] : 0u;
    out[i / 2] = static_cast<uint8_t>((in[i] & 15u) | (odd << 4));
  }
}

HWY_INLINE void unpack(const uint8_t *in, size_t n, uint8_t *out) {
  const PackTag<int8_t> d;
  const PackTag<uint8_t> du;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto bytes = hn::BitCast(d, hn::LoadU(du, in + i / 2));
    const auto even = hn::ShiftRight<4>(hn::ShiftLeft<4>(bytes));
    const auto odd = hn::ShiftRight<4>(bytes);
    hn::StoreInterleaved2(hn::BitCast(du, even), hn::BitCast(du, odd), du,
                          out + i);
  }
  auto extended = [](unsigned nibble) {
    return static_cast<uint8_t>((nibble ^ 8u) - 8u);
  };
  for (; i < n; ++i)
    out[i] = extended(i % 2 == 0 ? in[i / 2] & 15u : in[i / 2] >> 4);
}

} // namespace ddphook::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif // DDPHOOK_KERNELS_CODES_INL_H
