// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Implements Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random
// numbers: as easy as 1, 2, 3" (2011): four 32-bit words for each 128-bit
// counter, so that words can be computed in any order.
//
// Included once per instruction set by Highway's foreach_target.h; everything
// is in HWY_NAMESPACE.

#if defined(DDPHOOK_KERNELS_RANDOM_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DDPHOOK_KERNELS_RANDOM_INL_H
#undef DDPHOOK_KERNELS_RANDOM_INL_H
#else
#define DDPHOOK_KERNELS_RANDOM_INL_H
#endif

#include "base/rounding.h"

#include "hwy/highway.h"

#include <cstddef>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace ddphook::host::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

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
/// words. `out` must be aligned.
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

} // namespace ddphook::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif // DDPHOOK_KERNELS_RANDOM_INL_H
