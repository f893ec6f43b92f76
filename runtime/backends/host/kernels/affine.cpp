// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The codes of PyTorch's quantization hooks, and codes of one bit.
// docs/quantization.md has the formula. Scales and codes are computed in
// PyTorch's type: f64 in f64, all others in f32, where f16 and bf16 round after
// each step.

#include "encode.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "affine.cpp"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "elements-inl.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

HWY_BEFORE_NAMESPACE();
namespace ddphook::host::HWY_NAMESPACE {

/// Vectors of the type in which codes are computed.
template <class Element>
using Computed = hn::ScalableTag<
    std::conditional_t<std::is_same_v<Element, F64>, double, float>>;

void scaleKernel(const void *in, Dtype type, size_t n, AffineScale *scale) {
  withElement(type, [&](auto element) HWY_ATTR {
    using Element = decltype(element);
    const Computed<Element> d;
    const size_t lanes = hn::Lanes(d);
    const auto *x = static_cast<const typename Element::Elem *>(in);
    // The range includes zero, so zeros may fill up the last vector.
    auto least = hn::Zero(d), most = hn::Zero(d);
    auto strange = hn::Zero(d);
    for (size_t i = 0; i < n; i += lanes) {
      const auto v = loadSome(element, d, x + i, std::min(lanes, n - i));
      least = hn::Min(least, v);
      most = hn::Max(most, v);
      // 0 · v is NaN where v is infinite or NaN.
      strange = hn::Add(strange, hn::Mul(v, hn::Zero(d)));
    }
    const float low = static_cast<float>(hn::GetLane(hn::MinOfLanes(d, least)));
    const float high = static_cast<float>(hn::GetLane(hn::MaxOfLanes(d, most)));
    const bool isFinite = hn::AllTrue(d, hn::Eq(strange, hn::Zero(d)));
    // The subtraction may overflow, and so may casts from f64.
    float step = (high - low) / 255.0f;
    if (!isFinite || !std::isfinite(step)) {
      *scale = {std::numeric_limits<float>::quiet_NaN(), 0};
      return;
    }
    step = std::max(step, 0x1p-23f);
    const float zero = -std::nearbyint(low / step);
    *scale = {step, std::min(std::max(zero, 0.0f), 255.0f)};
  });
}

void encodeKernel(const void *in, Dtype type, size_t n,
                  const AffineScale &scale, uint8_t *codes) {
  withElement(type, [&](auto element) HWY_ATTR {
    using Element = decltype(element);
    const Computed<Element> d;
    using T = hn::TFromD<decltype(d)>;
    const size_t lanes = hn::Lanes(d);
    const auto *x = static_cast<const typename Element::Elem *>(in);
    const auto step = hn::Set(d, static_cast<T>(scale.scale));
    const auto zero = hn::Set(d, static_cast<T>(scale.zero));
    const auto least = hn::Zero(d), most = hn::Set(d, T(255));
    for (size_t i = 0; i < n; i += lanes) {
      const size_t count = std::min(lanes, n - i);
      auto v = hn::Div(loadSome(element, d, x + i, count), step);
      v = hn::Round(Element::round(d, v));
      v = Element::round(d, hn::Add(v, zero));
      v = hn::Min(hn::Max(v, least), most);
      HWY_ALIGN T buffer[hn::MaxLanes(decltype(d)())];
      hn::Store(v, d, buffer);
      for (size_t k = 0; k < count; ++k)
        codes[i + k] = static_cast<uint8_t>(buffer[k]);
    }
  });
}

void averageKernel(const uint8_t *const *codes, const AffineScale *scales,
                   int count, size_t n, int64_t divisor, void *out,
                   Dtype outType) {
  withElement(outType, [&](auto to) HWY_ATTR {
    using To = decltype(to);
    const hn::ScalableTag<float> d;
    const Like<uint8_t, decltype(d)> d8;
    const Like<int32_t, decltype(d)> di;
    const size_t lanes = hn::Lanes(d);
    const auto divisors = hn::Set(d, static_cast<float>(divisor));
    auto *y = static_cast<typename To::Elem *>(out);
    for (size_t i = 0; i < n; i += lanes) {
      const size_t size = std::min(lanes, n - i);
      auto sum = hn::Zero(d);
      for (int k = 0; k < count; ++k) {
        HWY_ALIGN uint8_t buffer[hn::MaxLanes(decltype(d)())] = {};
        const uint8_t *from = codes[k] + i;
        if (HWY_UNLIKELY(size < lanes)) {
          std::memcpy(buffer, from, size);
          from = buffer;
        }
        const auto code =
            hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, from)));
        const auto offset = hn::Sub(code, hn::Set(d, scales[k].zero));
        sum = hn::Add(sum, hn::Mul(hn::Set(d, scales[k].scale), offset));
      }
      sum = hn::Div(sum, divisors);
      HWY_ALIGN typename To::Elem buffer[hn::MaxLanes(decltype(d)())];
      if constexpr (std::is_same_v<To, F64>) {
        HWY_ALIGN float floats[hn::MaxLanes(decltype(d)())];
        hn::Store(sum, d, floats);
        std::copy(floats, floats + lanes, buffer);
      } else {
        To::template store<false>(d, sum, buffer);
      }
      std::memcpy(y + i, buffer, size * sizeof(*y));
    }
  });
}

} // namespace ddphook::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ddphook::host {

HWY_EXPORT(scaleKernel);
HWY_EXPORT(encodeKernel);
HWY_EXPORT(averageKernel);

/// Elements processed together; they stay in the first-level cache.
static constexpr int64_t kTile = 512;

// Codes of one bit, eight per byte, the first in the lowest bit. Compilers
// vectorise these loops over doubles: every element type's magnitudes are exact
// in f64, and the order of their sum is part of the format.

/// Calls fn(elements as f64, first index, count) for tiles of an array.
template <class Fn>
static void forTiles(const void *in, Dtype type, int64_t n, const Fn &fn) {
  alignas(64) double tile[kTile];
  for (int64_t begin = 0; begin < n; begin += kTile) {
    const int64_t count = std::min(kTile, n - begin);
    castArray(elementAt(in, type, begin), type, tile, Dtype::F64, count);
    fn(tile, begin, count);
  }
}

/// Returns the scale of a block of `n` elements: twice their mean magnitude.
static AffineScale findSignScale(const void *in, Dtype type, int64_t n) {
  // Element i is added to sum number i % 16.
  constexpr int64_t kSums = 16;
  static_assert(kTile % kSums == 0, "a tile begins with the first sum");
  double sums[kSums] = {};
  forTiles(in, type, n, [&](double *tile, int64_t, int64_t count) {
    // Padding the last tile with zeros changes no sum.
    std::fill(tile + count, tile + (count + kSums - 1) / kSums * kSums, 0.0);
    for (int64_t i = 0; i < count; i += kSums)
      for (int64_t k = 0; k < kSums; ++k)
        sums[k] += std::fabs(tile[i + k]);
  });
  double total = 0;
  for (const double sum : sums)
    total += sum;
  const float mean = static_cast<float>(total / static_cast<double>(n));
  // An infinite or NaN element makes the sum infinite or NaN.
  if (!std::isfinite(2 * mean))
    return {std::numeric_limits<float>::quiet_NaN(), 0};
  return {2 * mean, 0.5F};
}

static void encodeSigns(const void *in, Dtype type, int64_t n, uint8_t *codes) {
  forTiles(in, type, n, [&](double *tile, int64_t begin, int64_t count) {
    std::fill(tile + count, tile + (count + 7) / 8 * 8, 0.0);
    for (int64_t i = 0; i < count; i += 8) {
      unsigned byte = 0;
      for (unsigned k = 0; k < 8; ++k)
        byte |= (tile[i + k] < 0 ? 0U : 1U) << k;
      codes[(begin + i) / 8] = static_cast<uint8_t>(byte);
    }
  });
}

/// Writes a byte for each of `n` codes.
static void unpackSigns(const uint8_t *codes, int64_t n, uint8_t *bytes) {
  for (int64_t i = 0; i < n; i += 8) {
    const unsigned byte = codes[i / 8];
    uint8_t unpacked[8];
    for (unsigned k = 0; k < 8; ++k)
      unpacked[k] = static_cast<uint8_t>(byte >> k & 1U);
    std::memcpy(bytes + i, unpacked,
                static_cast<size_t>(std::min<int64_t>(8, n - i)));
  }
}

// Codes of any width.

AffineScale findAffineScale(Code code, const void *in, Dtype type, int64_t n) {
  if (code == Code::UI1)
    return findSignScale(in, type, n);
  AffineScale scale;
  HWY_DYNAMIC_DISPATCH(scaleKernel)
  (in, type, static_cast<size_t>(n), &scale);
  return scale;
}

void encodeAffine(Code code, const void *in, Dtype type, int64_t n,
                  const AffineScale &scale, uint8_t *codes) {
  if (code == Code::UI1)
    return encodeSigns(in, type, n, codes);
  if (std::isnan(scale.scale)) {
    // The block decodes to NaN, whatever its codes are.
    std::memset(codes, 0, static_cast<size_t>(n));
    return;
  }
  HWY_DYNAMIC_DISPATCH(encodeKernel)
  (in, type, static_cast<size_t>(n), scale, codes);
}

void averageAffine(Code code, const uint8_t *const *codes,
                   const AffineScale *scales, int count, int64_t n,
                   int64_t divisor, void *out, Dtype outType) {
  if (code != Code::UI1) {
    HWY_DYNAMIC_DISPATCH(averageKernel)
    (codes, scales, count, static_cast<size_t>(n), divisor, out, outType);
    return;
  }
  std::vector<uint8_t> bytes(static_cast<size_t>(count * kTile));
  std::vector<const uint8_t *> unpacked(static_cast<size_t>(count));
  for (int64_t begin = 0; begin < n; begin += kTile) {
    const int64_t size = std::min(kTile, n - begin);
    for (int k = 0; k < count; ++k) {
      uint8_t *own = bytes.data() + k * kTile;
      unpackSigns(codes[k] + begin / 8, size, own);
      unpacked[k] = own;
    }
    HWY_DYNAMIC_DISPATCH(averageKernel)
    (unpacked.data(), scales, count, static_cast<size_t>(size), divisor,
     elementAt(out, outType, begin), outType);
  }
}

/// Computes out[i] = in[i] - kept[i], or 0 where kept[i] is infinite or NaN.
template <class T>
static void storeLost(const T *in, const float *kept, T *out, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    out[i] = std::isfinite(kept[i]) ? in[i] - static_cast<T>(kept[i]) : T(0);
}

void affineError(const void *in, void *out, Dtype type, int64_t n,
                 const Encoding &encoding) {
  const int64_t block = encoding.block == 0 ? n : encoding.block;
  uint8_t codes[kTile];
  float kept[kTile];
  for (int64_t first = 0; first < n; first += block) {
    const int64_t end = std::min(n, first + block);
    const AffineScale scale = findAffineScale(
        encoding.code, elementAt(in, type, first), type, end - first);
    for (int64_t i = first; i < end; i += kTile) {
      const int64_t size = std::min(kTile, end - i);
      encodeAffine(encoding.code, elementAt(in, type, i), type, size, scale,
                   codes);
      const uint8_t *source = codes;
      averageAffine(encoding.code, &source, &scale, /*count=*/1, size,
                    /*divisor=*/1, kept, Dtype::F32);
      if (type == Dtype::F64) {
        storeLost(reinterpret_cast<const double *>(elementAt(in, type, i)),
                  kept, reinterpret_cast<double *>(elementAt(out, type, i)),
                  size);
        continue;
      }
      float wide[kTile];
      castArray(elementAt(in, type, i), type, wide, Dtype::F32, size);
      storeLost(wide, kept, wide, size);
      castArray(wide, Dtype::F32, elementAt(out, type, i), type, size);
    }
  }
}

} // namespace ddphook::host
#endif // HWY_ONCE
