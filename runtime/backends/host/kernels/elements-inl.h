// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Defines one class per element type, all with the same members, so that a
// kernel is written once: `load` and `store` convert between memory and vectors
// of the computation type (float, or double for f64), and `round` rounds such a
// vector to values that the element type can hold.
//
// All files *-inl.h are included once per instruction set by Highway's
// foreach_target.h; everything in them is in HWY_NAMESPACE. The 16-bit
// conversions are our own: Highway 1.0.3 truncates instead of rounding if the
// processor has no instruction, and the bfloat16 instruction of AVX-512 flushes
// subnormals.

#if defined(DDPHOOK_KERNELS_ELEMENTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DDPHOOK_KERNELS_ELEMENTS_INL_H
#undef DDPHOOK_KERNELS_ELEMENTS_INL_H
#else
#define DDPHOOK_KERNELS_ELEMENTS_INL_H
#endif

#include "base/dtype.h"

#include "hwy/highway.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace ddphook::host::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
constexpr bool isDouble = std::is_same_v<hn::TFromD<D>, double>;

/// Vectors of another type with the same number of lanes.
template <class T, class D>
using Like = hn::Rebind<T, D>;

/// The most lanes. Highway 1.0's MaxLanes() is too small for half SVE vectors.
template <class D>
constexpr size_t kMostLanes =
    HWY_HAVE_SCALABLE ? HWY_LANES(hn::TFromD<D>) : hn::MaxLanes(D());

/// True if Highway emulates conversions of doubles to floats, and of halves.
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
constexpr bool kEmulated = true;
#else
constexpr bool kEmulated = false;
#endif
#undef DDPHOOK_NATIVE_F16
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
#define DDPHOOK_NATIVE_F16 1
#else
#define DDPHOOK_NATIVE_F16 0
#endif

template <bool kStream, class D, class V>
HWY_INLINE void storeVector(D d, V v, hn::TFromD<D> *p) {
  // Highway's Stream() writes 16 bytes even for smaller vectors.
  if constexpr (kStream && hn::MaxLanes(D()) * sizeof(*p) >= 16)
    hn::Stream(v, d, p);
  else
    hn::StoreU(v, d, p);
}

/// Converts double → float: rounds to nearest even, overflows to infinity.
template <class DF, class V>
HWY_INLINE hn::Vec<DF> demoteDouble(DF df, V v) {
  if constexpr (kEmulated) {
    // Highway saturates here.
    const Like<double, DF> dd;
    HWY_ALIGN double wide[hn::MaxLanes(dd)];
    HWY_ALIGN float narrow[hn::MaxLanes(df)];
    hn::Store(v, dd, wide);
    for (size_t i = 0; i < hn::Lanes(df); ++i)
      narrow[i] = static_cast<float>(wide[i]);
    return hn::Load(df, narrow);
  } else {
    return hn::DemoteTo(df, v);
  }
}

/// Converts between floats and doubles, to the type of the result's lanes.
template <class D, class V>
HWY_INLINE hn::Vec<D> convertWide(D d, V v) {
  if constexpr (isDouble<D>)
    return hn::PromoteTo(d, v);
  else
    return demoteDouble(d, v);
}

/// The types of computations.
template <class T, Dtype kType>
struct WideFloat {
  static constexpr Dtype type = kType;
  using Elem = T;

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const Elem *p) {
    if constexpr (std::is_same_v<hn::TFromD<D>, T>)
      return hn::LoadU(d, p);
    else
      return convertWide(d, hn::LoadU(Like<T, D>(), p));
  }
  template <bool kStream, class D, class V>
  static HWY_INLINE void store(D d, V v, Elem *p) {
    if constexpr (std::is_same_v<hn::TFromD<D>, T>)
      storeVector<kStream>(d, v, p);
    else
      storeVector<kStream>(Like<T, D>(), convertWide(Like<T, D>(), v), p);
  }
  template <class D, class V>
  static HWY_INLINE V round(D, V v) {
    return v;
  }
};
struct F32 : WideFloat<float, Dtype::F32> {};
struct F64 : WideFloat<double, Dtype::F64> {};

/// The common part of types narrower than a float. `Derived` converts between
/// vectors of floats and of the type's bits.
template <class Derived, class Bits>
struct NarrowFloat {
  using Elem = Bits;

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const Elem *p) {
    if constexpr (isDouble<D>)
      return hn::PromoteTo(d, Derived::loadFloat(Like<float, D>(), p));
    else
      return Derived::loadFloat(d, p);
  }
  template <bool kStream, class D, class V>
  static HWY_INLINE void store(D d, V v, Elem *p) {
    const Like<Bits, D> bits;
    if constexpr (isDouble<D>) {
      const Like<float, D> df;
      storeVector<kStream>(bits, Derived::bits(df, demoteDouble(df, v)), p);
    } else {
      storeVector<kStream>(bits, Derived::bits(d, v), p);
    }
  }
};

/// Converts numbers with `kMantissa` and `kExponent` bits from and to floats,
/// by integer operations on the bits of magnitudes.
template <int kMantissa, int kExponent>
struct ShortFormat {
  /// How far the exponent bits are from their position in a float.
  static constexpr int kShift = 23 - kMantissa;
  static constexpr int kBias = (1 << (kExponent - 1)) - 1;
  /// Converts an exponent to a float's.
  static constexpr int32_t kRebias = (127 - kBias) << 23;
  /// Bits of floats: the least normal number, the first number that is too
  /// large, and a number whose last place is that of the subnormal numbers.
  static constexpr int32_t kLeastNormal = kRebias + (1 << 23);
  static constexpr int32_t kTooLarge = (127 + kBias + 1) << 23;
  static constexpr int32_t kSubnormalUnit = (127 + 23 + 1 - kBias - kMantissa)
                                            << 23;

  /// Returns the float for a finite number whose bits have been shifted.
  template <class D, class VI>
  static HWY_INLINE VI widen(D d, VI shifted) {
    const Like<int32_t, D> di;
    // A subtraction of floats normalises subnormal numbers.
    auto rebiased = hn::Add(shifted, hn::Set(di, kRebias));
    auto normalised = hn::BitCast(
        di, hn::Sub(hn::BitCast(d, hn::Add(rebiased, hn::Set(di, 1 << 23))),
                    hn::BitCast(d, hn::Set(di, kLeastNormal))));
    return hn::IfThenElse(hn::Lt(shifted, hn::Set(di, 1 << 23)), normalised,
                          rebiased);
  }
  /// Does the same for a type with infinities.
  template <class D, class VI>
  static HWY_INLINE VI widenOrSpecial(D d, VI shifted) {
    const Like<int32_t, D> di;
    constexpr int32_t kLargestExponent = ((1 << kExponent) - 1) << 23;
    return hn::IfThenElse(hn::Lt(shifted, hn::Set(di, kLargestExponent)),
                          widen(d, shifted),
                          hn::Add(shifted, hn::Set(di, 2 * kRebias)));
  }

  /// Returns the bits of a float's magnitude, if it is not too large.
  template <class D, class VI>
  static HWY_INLINE VI narrow(D d, VI magnitude) {
    const Like<int32_t, D> di;
    // Normal results: adding half of the last remaining place, less one, plus
    // its parity rounds to nearest even; the carry into the exponent is right.
    constexpr int32_t kHalf = (1 << (kShift - 1)) - 1;
    auto odd = hn::And(hn::ShiftRight<kShift>(magnitude), hn::Set(di, 1));
    auto normal = hn::ShiftRight<kShift>(
        hn::Add(hn::Add(magnitude, hn::Set(di, kHalf - kRebias)), odd));
    // Subnormal results: the addition rounds at their last place.
    auto unit = hn::Set(di, kSubnormalUnit);
    auto subnormal = hn::Sub(hn::BitCast(di, hn::Add(hn::BitCast(d, magnitude),
                                                     hn::BitCast(d, unit))),
                             unit);
    return hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, kLeastNormal)),
                          subnormal, normal);
  }
  /// Does the same for any magnitude, given the bits of infinity and NaN.
  template <class D, class VI>
  static HWY_INLINE VI narrowOrSpecial(D d, VI magnitude, int32_t infinity,
                                       int32_t nan) {
    const Like<int32_t, D> di;
    auto special = hn::IfThenElse(isNaN(d, magnitude), hn::Set(di, nan),
                                  hn::Set(di, infinity));
    return hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, kTooLarge)),
                          narrow(d, magnitude), special);
  }

  /// True where a float's magnitude bits are a NaN's.
  template <class D, class VI>
  static HWY_INLINE hn::Mask<Like<int32_t, D>> isNaN(D, VI magnitude) {
    return hn::Gt(magnitude, hn::Set(Like<int32_t, D>(), 0xff << 23));
  }
};

/// The common part of types whose mantissa and exponent are both shorter than a
/// float's. `Derived` converts between magnitudes of floats, and bits without a
/// sign, which are shifted before they are widened.
template <class Derived, class Bits, int kMantissa, int kExponent>
struct ShortFloat : NarrowFloat<Derived, Bits> {
  using Format = ShortFormat<kMantissa, kExponent>;

  template <class D>
  static HWY_INLINE hn::Vec<D> loadFloat(D d, const Bits *p) {
    return fromInts(
        d, hn::PromoteTo(Like<int32_t, D>(), hn::LoadU(Like<Bits, D>(), p)));
  }
  template <class D, class V>
  static HWY_INLINE hn::Vec<Like<Bits, D>> bits(D d, V v) {
    return hn::DemoteTo(Like<Bits, D>(), toInts(d, v));
  }
  template <class D, class V>
  static HWY_INLINE V round(D d, V v) {
    return fromInts(d, toInts(d, v));
  }

private:
  /// The sign, and how far it is from its position in a float.
  static constexpr int kSignShift = 32 - 8 * int{sizeof(Bits)};
  static constexpr int32_t kSign = 1 << (31 - kSignShift);

  template <class D, class VI>
  static HWY_INLINE hn::Vec<D> fromInts(D d, VI all) {
    const Like<int32_t, D> di;
    auto sign = hn::ShiftLeft<kSignShift>(hn::And(all, hn::Set(di, kSign)));
    auto shifted =
        hn::ShiftLeft<Format::kShift>(hn::And(all, hn::Set(di, kSign - 1)));
    return hn::BitCast(d, hn::Or(Derived::widen(d, shifted), sign));
  }
  template <class D, class V>
  static HWY_INLINE hn::Vec<Like<int32_t, D>> toInts(D d, V v) {
    const Like<int32_t, D> di;
    auto all = hn::BitCast(di, v);
    auto sign = hn::And(hn::ShiftRight<kSignShift>(all), hn::Set(di, kSign));
    auto result = Derived::narrow(d, hn::And(all, hn::Set(di, 0x7fffffff)));
    return hn::Or(result, sign);
  }
};

/// A short type with infinities, given their bits and those of a NaN.
template <class Derived, class Bits, int kMantissa, int kExponent,
          int32_t kInfinity, int32_t kNaN>
struct ShortFloatWithInfinity
    : ShortFloat<Derived, Bits, kMantissa, kExponent> {
  using Format = ShortFormat<kMantissa, kExponent>;

  template <class D, class VI>
  static HWY_INLINE VI widen(D d, VI shifted) {
    return Format::widenOrSpecial(d, shifted);
  }
  template <class D, class VI>
  static HWY_INLINE VI narrow(D d, VI magnitude) {
    return Format::narrowOrSpecial(d, magnitude, kInfinity, kNaN);
  }
};

#if DDPHOOK_NATIVE_F16
struct F16 : NarrowFloat<F16, uint16_t> {
  static constexpr Dtype type = Dtype::F16;

  template <class D>
  static HWY_INLINE hn::Vec<D> loadFloat(D d, const Elem *p) {
    const Like<hwy::float16_t, D> df16;
    return hn::PromoteTo(d,
                         hn::BitCast(df16, hn::LoadU(Like<uint16_t, D>(), p)));
  }
  template <class D, class V>
  static HWY_INLINE hn::Vec<Like<uint16_t, D>> bits(D, V v) {
    const Like<hwy::float16_t, D> df16;
    return hn::BitCast(Like<uint16_t, D>(), hn::DemoteTo(df16, v));
  }
  template <class D, class V>
  static HWY_INLINE V round(D d, V v) {
    return hn::PromoteTo(d, hn::DemoteTo(Like<hwy::float16_t, D>(), v));
  }
};
#else
struct F16 : ShortFloatWithInfinity<F16, uint16_t, 10, 5, 0x7c00, 0x7e00> {
  static constexpr Dtype type = Dtype::F16;
};
#endif

struct BF16 : NarrowFloat<BF16, uint16_t> {
  static constexpr Dtype type = Dtype::BF16;

  template <class D>
  static HWY_INLINE hn::Vec<D> loadFloat(D d, const Elem *p) {
    return hn::BitCast(
        d, hn::ShiftLeft<16>(hn::PromoteTo(Like<int32_t, D>(),
                                           hn::LoadU(Like<uint16_t, D>(), p))));
  }
  template <class D, class V>
  static HWY_INLINE hn::Vec<Like<uint16_t, D>> bits(D d, V v) {
    auto upper = hn::ShiftRight<16>(rounded(d, v));
    return hn::DemoteTo(Like<uint16_t, D>(),
                        hn::BitCast(Like<int32_t, D>(), upper));
  }
  template <class D, class V>
  static HWY_INLINE V round(D d, V v) {
    const Like<uint32_t, D> du;
    return hn::BitCast(d, hn::And(rounded(d, v), hn::Set(du, 0xffff0000u)));
  }

  /// Returns the bfloat16 in the upper half of each 32-bit integer; the lower
  /// half is arbitrary.
  template <class D, class V>
  static HWY_INLINE hn::Vec<Like<uint32_t, D>> rounded(D, V v) {
    const Like<uint32_t, D> du;
    auto u = hn::BitCast(du, v);
    auto odd = hn::And(hn::ShiftRight<16>(u), hn::Set(du, 1u));
    auto sum = hn::Add(u, hn::Add(odd, hn::Set(du, 0x7fffu)));
    // The addition can carry a NaN into infinity or past it.
    return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)),
                          hn::Set(du, 0x7fc00000u), sum);
  }
};

/// A type with no infinities and one NaN of each sign. As in PyTorch,
/// infinities and values that are too large become the largest number, 448.
struct F8E4M3FN : ShortFloat<F8E4M3FN, uint8_t, 3, 4> {
  static constexpr int32_t kNaN = 0x7f, kLargest = 0x7e;

  template <class D, class VI>
  static HWY_INLINE VI widen(D d, VI shifted) {
    const Like<int32_t, D> di;
    return hn::IfThenElse(hn::Eq(shifted, hn::Set(di, kNaN << Format::kShift)),
                          hn::Set(di, 0x7ff00000), Format::widen(d, shifted));
  }
  template <class D, class VI>
  static HWY_INLINE VI narrow(D d, VI magnitude) {
    const Like<int32_t, D> di;
    return hn::IfThenElse(
        Format::isNaN(d, magnitude), hn::Set(di, kNaN),
        hn::Min(Format::narrow(d, magnitude), hn::Set(di, kLargest)));
  }
};

/// The upper byte of an F16, rounded directly from the wider value. NaNs stay
/// NaNs; as in PyTorch, conversions to NaN set all bits of the mantissa.
struct F8E5M2 : ShortFloatWithInfinity<F8E5M2, uint8_t, 2, 5, 0x7c, 0x7f> {};

/// Calls fn(Element()) with the class of `type`.
template <class Fn>
HWY_INLINE void withElement(Dtype type, const Fn &fn) {
  switch (type) {
#define DDPHOOK_DTYPE(NAME, name, bytes, c_type, file, value)                  \
  case Dtype::NAME:                                                            \
    return fn(NAME());
#include "ddphook/runtime/element_types.inc"
  }
}

/// Does the same for the types of casts.
template <class Fn>
HWY_INLINE void withElement(CastDtype type, const Fn &fn) {
  switch (type) {
#define DDPHOOK_CAST_TYPE(NAME, name, bytes, c_type, file, value)              \
  case CastDtype::NAME:                                                        \
    return fn(NAME());
#include "ddphook/runtime/element_types.inc"
  }
}

/// Loads the first `count` elements, followed by zeros.
template <class Element, class D>
HWY_INLINE hn::Vec<D> loadSome(Element, D d, const typename Element::Elem *p,
                               size_t count) {
  if (HWY_LIKELY(count == hn::Lanes(d)))
    return Element::load(d, p);
  HWY_ALIGN typename Element::Elem buffer[kMostLanes<D>] = {};
  std::memcpy(buffer, p, count * sizeof(*p));
  return Element::load(d, buffer);
}

/// Stores two vectors contiguously.
template <class Element, bool kStream, class D, class V>
HWY_INLINE void storePair(D d, V a, V b, typename Element::Elem *p) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (std::is_same_v<Element, BF16> &&
                std::is_same_v<D, hn::ScalableTag<float>>) {
    // Picking the upper halves of two vectors is one shuffle.
    const hn::Repartition<uint16_t, D> d16;
    storeVector<kStream>(d16,
                         hn::ConcatOdd(d16,
                                       hn::BitCast(d16, BF16::rounded(d, b)),
                                       hn::BitCast(d16, BF16::rounded(d, a))),
                         p);
    return;
  }
#endif
  Element::template store<kStream>(d, a, p);
  Element::template store<kStream>(d, b, p + hn::Lanes(d));
}

/// Prefetches the cache line `distance` elements from `p` (if negative, before
/// it) into the second or first cache level. It may be outside the array.
template <bool kFirstLevel = false, class Elem>
HWY_INLINE void prefetchFrom(const Elem *p, ptrdiff_t distance) {
  const auto bytes = static_cast<uintptr_t>(distance) * sizeof(Elem);
  __builtin_prefetch(
      reinterpret_cast<const void *>(reinterpret_cast<uintptr_t>(p) + bytes),
      /*rw=*/0, /*locality=*/kFirstLevel ? 3 : 2);
}

/// Prefetches what a loop that reads from `p` on will reach: far enough ahead
/// that lines of the next page arrive in time, since hardware prefetchers stop
/// at page boundaries.
template <class Elem>
HWY_INLINE void prefetchAhead(const Elem *p) {
  constexpr ptrdiff_t bytes = 12288;
  prefetchFrom</*kFirstLevel=*/true>(p, bytes / ptrdiff_t{sizeof(Elem)});
}

} // namespace ddphook::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif // include guard, toggled for every instruction set
