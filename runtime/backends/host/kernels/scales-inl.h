//===- scales-inl.h - scales of blocks, and quotients by them ---*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Included once per instruction set by Highway's foreach_target.h; everything
// is in HWY_NAMESPACE.
//
//===----------------------------------------------------------------------===//
#if defined(DDPHOOK_KERNELS_SCALES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DDPHOOK_KERNELS_SCALES_INL_H
#undef DDPHOOK_KERNELS_SCALES_INL_H
#else
#define DDPHOOK_KERNELS_SCALES_INL_H
#endif

#include "codes-inl.h"

#include <algorithm>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace ddphook::host::HWY_NAMESPACE {

/// A bfloat16's value.
HWY_INLINE float fromBFloat16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

/// Magnitudes of floats are in the order of their bits, NaNs last.
template <class D, class V>
HWY_INLINE hn::Vec<Like<int32_t, D>> magnitude(D, V v) {
  const Like<int32_t, D> di;
  return hn::And(hn::BitCast(di, v), hn::Set(di, 0x7fffffff));
}

/// Scales between these are far from what f32 cannot hold, and so are products
/// of codes with them and quotients by them.
constexpr float kLeastUsual = 0x1p-64f, kMostUsual = 0x1p64f;
HWY_INLINE bool isUsual(float scale) {
  return scale >= kLeastUsual && scale <= kMostUsual;
}

/// A scale takes longer to come out of a block's largest element than the block
/// takes to be encoded: those of some blocks are computed together.
constexpr size_t kMostTogether = 8;
HWY_INLINE size_t blocksTogether(size_t block) {
  return std::clamp<size_t>(Encoding::kMostBlock / block, 1, kMostTogether);
}

/// The scale of a block, and what f32 has of its inverse.
struct BlockScale {
  float value, inverse;
};

/// The scales of blocks that are computed together.
template <class CodeT>
class BlockScales {
public:
  /// Block `number` has one of these magnitudes, and no larger one.
  template <class V>
  HWY_INLINE void setMost(size_t number, V magnitudes) {
    const hn::DFromV<V> di;
    most[number] = hn::GetLane(hn::MaxOfLanes(di, magnitudes));
  }

  /// Computes the first `blocks` scales and writes them to `out`, unless that
  /// is null.
  HWY_INLINE void compute(size_t blocks, uint16_t *out) {
    const hn::CappedTag<float, kMostTogether> d;
    const Like<int32_t, decltype(d)> di;
    const Like<uint16_t, decltype(d)> d16;
    HWY_ALIGN uint16_t narrow[kMostTogether];
    for (size_t i = 0; i < kMostTogether; i += hn::Lanes(d)) {
      const auto bits = hn::Load(di, most + i);
      const auto rounded = BF16::round(
          d, hn::Div(hn::BitCast(d, bits), hn::Set(d, CodeT::largest)));
      // All elements of a block with an infinity or a NaN are NaN.
      const auto isFinite = hn::Lt(bits, hn::Set(di, 0x7f800000));
      const auto scale =
          hn::IfThenElse(hn::RebindMask(d, isFinite), rounded,
                         hn::BitCast(d, hn::Set(di, 0x7fc00000)));
      hn::Store(scale, d, values + i);
      hn::Store(hn::Div(hn::Set(d, 1.0f), scale), d, inverses + i);
      hn::Store(BF16::bits(d, scale), d16, narrow + i);
    }
    if (out)
      std::memcpy(out, narrow, blocks * sizeof(*out));
  }

  HWY_INLINE BlockScale operator[](size_t number) const {
    return {values[number], inverses[number]};
  }

private:
  HWY_ALIGN int32_t most[kMostTogether] = {};
  HWY_ALIGN float values[kMostTogether] = {}, inverses[kMostTogether] = {};
};

/// Calls most(begin, count, number), which gives a vector of magnitudes with
/// the largest one of a block, for all blocks of `n` elements, and for each of
/// them afterwards encode(begin, count, number, scale). Between these two no
/// other block has its number, which is below blocksTogether(). Casts have no
/// scales.
template <class CodeT, class Most, class Encode>
HWY_INLINE void forBlocksAhead(size_t n, size_t block, uint16_t *scales,
                               const Most &most, const Encode &encode) {
  BlockScales<CodeT> found;
  const size_t together = blocksTogether(block), lead = together * block;
  for (size_t first = 0; first < n + lead; first += lead) {
    for (size_t number = 0; number < together; ++number) {
      const size_t i = first + number * block;
      if (i >= lead && i - lead < n)
        encode(i - lead, std::min(block, n - (i - lead)), number,
               found[number]);
      if (i < n)
        found.setMost(number, most(i, std::min(block, n - i), number));
    }
    if constexpr (isScaled<CodeT>) {
      if (first >= n)
        return;
      const size_t blocks = std::min(together, (n - first + block - 1) / block);
      found.compute(blocks, scales);
      scales = scales ? scales + blocks : nullptr;
    }
  }
}

/// Quotients by a usual scale, as fast as two products on processors that round
/// once in multiplying and adding.
///
/// They have the bits of a division, since scales have 8 significant bits.
/// `upper` + `lower` is less than 2^-47 of it from the inverse, and the sum
/// that is rounded last less than 2^-22 units of its last place from the
/// quotient. No quotient by such a divisor is closer than 2^-9 units to the
/// middle of two floats, from where it would be rounded to the other one. Of
/// quotients below 2^-40, which are codes of zero, more may be lost.
template <class CodeT, class D>
struct Quotients {
  using V = hn::Vec<D>;

#if HWY_NATIVE_FMA
  HWY_INLINE Quotients(D d, const BlockScale &scale)
      : upper(hn::Set(d, scale.inverse)),
        // What a quotient leaves is exact.
        lower(hn::Mul(
            hn::NegMulAdd(upper, hn::Set(d, scale.value), hn::Set(d, 1.0f)),
            upper)) {}

  HWY_INLINE V of(V x) const {
    const V quotient = hn::MulAdd(x, upper, hn::Mul(x, lower));
    // The sum of two zeros is positive.
    return CodeT::kIsFloat ? hn::CopySign(quotient, x) : quotient;
  }

  V upper, lower;
#else
  HWY_INLINE Quotients(D d, const BlockScale &scale)
      : divisor(hn::Set(d, scale.value)) {}

  HWY_INLINE V of(V x) const { return hn::Div(x, divisor); }

  V divisor;
#endif
};

} // namespace ddphook::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif // include guard, toggled for every instruction set
