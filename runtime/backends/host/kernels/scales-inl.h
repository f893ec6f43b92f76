// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the scales of blocks, and divides by them.

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

HWY_INLINE float fromBFloat16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

/// Returns magnitudes of floats as integers with the same order, NaNs last.
template <class D, class V>
HWY_INLINE hn::Vec<Like<int32_t, D>> magnitude(D, V v) {
  const Like<int32_t, D> di;
  return hn::And(hn::BitCast(di, v), hn::Set(di, 0x7fffffff));
}

/// Scales within these bounds, products of codes with them and quotients by
/// them stay far from the limits of f32.
constexpr float kLeastUsual = 0x1p-64f, kMostUsual = 0x1p64f;
constexpr uint16_t kLeastUsualBits = (127 - 64) << 7, kUsualRange = 128 << 7;
HWY_INLINE bool isUsual(float scale) {
  return scale >= kLeastUsual && scale <= kMostUsual;
}

/// True if the scale with these bfloat16 bits is usual.
HWY_INLINE bool isUsual(uint16_t bits) {
  return static_cast<uint16_t>(bits - kLeastUsualBits) <= kUsualRange;
}

HWY_INLINE bool areUsual(const uint16_t *scales, size_t count) {
  const hn::CappedTag<uint16_t, 8> d;
  auto farthest = hn::Zero(d);
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d))
    farthest = hn::Max(farthest, hn::Sub(hn::LoadU(d, scales + i),
                                         hn::Set(d, kLeastUsualBits)));
  bool all = hn::AllFalse(d, hn::Gt(farthest, hn::Set(d, kUsualRange)));
  for (; i < count; ++i)
    all &= isUsual(scales[i]);
  return all;
}

/// Computing a scale from a block's largest element takes longer than encoding
/// the block. So blocks are processed in groups, which stay in the first-level
/// cache: a group is encoded while the largest elements of the next one are
/// found, and once half of these are known, their scales are computed together.
constexpr size_t kGroupElements = Encoding::kMostBlock, kMostTogether = 8;
HWY_INLINE size_t blocksTogether(size_t block) {
  return std::clamp<size_t>(kGroupElements / 2 / block, 1, kMostTogether);
}
HWY_INLINE size_t blocksInGroup(size_t block) {
  return block > kGroupElements / 2 ? 1 : 2 * blocksTogether(block);
}

/// The scale of a block, and its inverse rounded to f32.
struct BlockScale {
  float value, inverse;
};

#if HWY_TARGET != HWY_SCALAR
/// Returns the lane-wise maximum of all 16-byte parts.
template <class DI, class VI>
HWY_INLINE auto largestPart([[maybe_unused]] DI di, VI v) {
  if constexpr (hn::MaxLanes(DI()) > 4) {
    const hn::Half<DI> half;
    return largestPart(half,
                       hn::Max(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else {
    return v;
  }
}

/// Returns the largest lane of each of four vectors of at least 16 bytes.
template <class DI, class VI>
HWY_INLINE auto largestOfFour(DI di, VI a, VI b, VI c, VI d) {
  const hn::Repartition<uint64_t, DI> pairs;
  auto ofTwo = [&](VI v, VI w) HWY_ATTR {
    return hn::BitCast(pairs, hn::Max(hn::InterleaveLower(di, v, w),
                                      hn::InterleaveUpper(di, v, w)));
  };
  const auto ab = ofTwo(a, b), cd = ofTwo(c, d);
  return largestPart(
      di, hn::Max(hn::BitCast(di, hn::InterleaveLower(pairs, ab, cd)),
                  hn::BitCast(di, hn::InterleaveUpper(pairs, ab, cd))));
}
#endif

/// The scales of a group of blocks, whose elements arrive as vectors of D.
template <class CodeT, class D>
class BlockScales {
  using DI = Like<int32_t, D>;
  static constexpr size_t kLanes = hn::MaxLanes(DI());

public:
  /// Sets magnitudes of block `number`, including its largest.
  HWY_INLINE void setMost(size_t number, hn::Vec<DI> magnitudes) {
    hn::Store(magnitudes, DI(), most + number * kLanes);
  }

  /// Computes the scales of up to kMostTogether blocks from `first` on, and
  /// writes them to `out`, if it is not null.
  HWY_INLINE void compute(size_t first, size_t blocks, uint16_t *out) {
    const hn::CappedTag<float, kMostTogether> d;
    const Like<int32_t, decltype(d)> di;
    const Like<uint16_t, decltype(d)> d16;
    HWY_ALIGN uint16_t narrow[kMostTogether];
    for (size_t i = 0; i < kMostTogether; i += hn::Lanes(d)) {
      const auto bits = findLargest(di, first + i);
      const auto rounded = BF16::round(
          d, hn::Div(hn::BitCast(d, bits), hn::Set(d, CodeT::largest)));
      // All elements of a block with an infinity or a NaN become NaN.
      const auto isFinite = hn::Lt(bits, hn::Set(di, 0x7f800000));
      const auto scale =
          hn::IfThenElse(hn::RebindMask(d, isFinite), rounded,
                         hn::BitCast(d, hn::Set(di, 0x7fc00000)));
      hn::StoreU(scale, d, values + first + i);
      hn::StoreU(hn::Div(hn::Set(d, 1.0f), scale), d, inverses + first + i);
      hn::Store(BF16::bits(d, scale), d16, narrow + i);
    }
    usual = areUsual(narrow, blocks) && (usual || first == 0);
    if (!out)
      return;
    if (HWY_LIKELY(blocks == kMostTogether))
      std::memcpy(out, narrow, sizeof(narrow));
    else
      std::memcpy(out, narrow, blocks * sizeof(*out));
  }

  HWY_INLINE BlockScale operator[](size_t number) const {
    return {values[number], inverses[number]};
  }
  HWY_INLINE bool allUsual() const { return usual; }

private:
  /// Returns the largest magnitudes of as many blocks as there are lanes.
  template <class DL>
  HWY_INLINE hn::Vec<DL> findLargest(DL dl, size_t first) const {
    const DI di;
    auto at = [&](size_t i) HWY_ATTR {
      return hn::Load(di, most + (first + i) * kLanes);
    };
#if HWY_TARGET != HWY_SCALAR
    if constexpr (kLanes >= 4 && hn::MaxLanes(DL()) == 4)
      return largestOfFour(di, at(0), at(1), at(2), at(3));
    if constexpr (kLanes >= 4 && hn::MaxLanes(DL()) > 4) {
      const hn::Half<DL> half;
      return hn::Combine(dl, findLargest(half, first + hn::Lanes(half)),
                         findLargest(half, first));
    }
#endif
    HWY_ALIGN int32_t largest[hn::MaxLanes(DL())];
    for (size_t i = 0; i < hn::Lanes(dl); ++i)
      largest[i] = hn::GetLane(hn::MaxOfLanes(di, at(i)));
    return hn::Load(dl, largest);
  }

  static constexpr size_t kRoom = 2 * kMostTogether;
  HWY_ALIGN int32_t most[kRoom * kLanes] = {};
  HWY_ALIGN float values[kRoom] = {}, inverses[kRoom] = {};
  bool usual = false;
};

/// Processes the blocks of `n` elements as described above. `work` provides
///
///   most(index, count, number), which returns a vector of magnitudes that
///       includes the largest of a block,
///   encode(index, count, number, scale), called later for each block,
///   canDoBoth(index, blocks), which says whether both(before, index, number,
///       scale) may replace encode(before, ...) and most(index, ...) for blocks
///       from `index` on, where all blocks are whole and all scales usual.
///
/// `both` is faster: one computes while the other waits for memory. Between a
/// block's most() and encode() no other block has its number, which is below
/// blocksInGroup(). Casts have no scales.
template <class CodeT, class D, class Work>
HWY_INLINE void forBlocksAhead(D, size_t n, size_t block, uint16_t *scales,
                               Work &&work) {
  BlockScales<CodeT, D> found;
  const size_t blocks = hwy::DivCeil(n, block);
  const size_t group = blocksInGroup(block), half = blocksTogether(block);
  auto sizeOf = [&](size_t index)
                    HWY_ATTR { return std::min(block, n - index * block); };
  for (size_t first = 0; first < blocks + group; first += group) {
    const bool doBoth = isScaled<CodeT> && first >= group &&
                        (first + group) * block <= n && found.allUsual() &&
                        work.canDoBoth(first, group);
    for (size_t begin = 0; begin < group; begin += half) {
      for (size_t number = begin; number < begin + half; ++number) {
        const size_t index = first + number, before = index - group;
        if constexpr (isScaled<CodeT>) {
          if (HWY_LIKELY(doBoth)) {
            found.setMost(number,
                          work.both(before, index, number, found[number]));
            continue;
          }
        }
        if (index >= group && before < blocks)
          work.encode(before, sizeOf(before), number, found[number]);
        if (index < blocks)
          found.setMost(number, work.most(index, sizeOf(index), number));
      }
      const size_t index = first + begin;
      if (isScaled<CodeT> && index < blocks)
        found.compute(begin, std::min(half, blocks - index),
                      scales ? scales + index : nullptr);
    }
  }
}

/// Divides by a usual scale in two products on processors that have a fused
/// multiply-add.
///
/// The results have the bits of a division, because scales have 8 significant
/// bits. `upper` + `lower` differs from the inverse by less than 2^-47 of it,
/// and the sum, before its rounding, from the quotient by less than 2^-22 units
/// of its last place. No quotient by such a divisor is closer than 2^-9 units
/// to the midpoint of two floats, where it would round to the other one.
/// Quotients below 2^-40, which are codes of zero, may be less accurate.
template <class D>
struct Quotients {
  using V = hn::Vec<D>;

#if HWY_NATIVE_FMA
  HWY_INLINE Quotients(D d, const BlockScale &scale)
      : upper(hn::Set(d, scale.inverse)),
        // The remainder of a quotient is exact.
        lower(hn::Mul(
            hn::NegMulAdd(upper, hn::Set(d, scale.value), hn::Set(d, 1.0f)),
            upper)) {}

  /// A quotient of -0 may become +0.
  HWY_INLINE V of(V x) const { return hn::MulAdd(x, upper, hn::Mul(x, lower)); }

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
