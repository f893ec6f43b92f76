// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Computes scales of blocks of affine codes, and converts elements to codes,
// exactly as docs/quantization.md specifies.
//
// The order in which the magnitudes of signs are added allows 16 threads to
// add, however long a block is, so a warp processes each block.

#pragma once

#include "base/encoding.h"
#include "quads.h"
#include "reductions.h"

namespace ddphook::cuda {

/// Threads per thread block of the kernels that encode, and per warp.
constexpr int kAffineThreads = 256;
constexpr int kLanes = 32;

//===----------------------------------------------------------------------===//
// Scales.
//===----------------------------------------------------------------------===//

constexpr uint32_t kInfinityBits = 0x7f800000u;

/// How far the elements of a block, and zero, extend to either side of zero. A
/// NaN extends infinitely far.
struct Range {
  float below, above;

  DDPHOOK_HOST_DEVICE void include(float x) {
    if (!(x == x))
      x = floatOf(kInfinityBits);
    above = x > above ? x : above;
    below = -x > below ? -x : below;
  }
};

constexpr float kLargestByte = 255;

DDPHOOK_HOST_DEVICE AffineScale noScale() {
  return {floatOf(kInfinityBits | 0x400000u), 0};
}

/// Returns the scale of a block of byte codes. The range may overflow.
DDPHOOK_HOST_DEVICE AffineScale scaleOf(const Range &range, bool isExact) {
  const float length = range.above + range.below;
  float step = isExact ? length / kLargestByte : length * (1 / kLargestByte);
  if (!F32::isFinite(step))
    return noScale();
  step = step > 0x1p-23f ? step : 0x1p-23f;
  const float zero = rintf(range.below / step);
  return {step, zero < kLargestByte ? zero : kLargestByte};
}

/// Returns the range of an array, found by `kGroup` threads of which this is
/// number `thread`; each gets the range of some elements.
template <class Element, int kGroup>
__device__ __forceinline__ Range findRange(const ElemOf<Element> *x,
                                           int64_t size, int thread) {
  // Several 16-byte loads are in flight before the first one is used.
  constexpr int kPacks = 4, kLength = kPackLength<ElemOf<Element>>;
  const bool isAligned = isAlignedForPacks<kLength>(x);
  Range range = {0, 0};
  auto include = [&](ElemOf<Element> element) {
    range.include(static_cast<float>(Element::widen(element)));
  };
  for (int64_t first = 0; first < size; first += kPacks * kGroup * kLength) {
    Pack<ElemOf<Element>, kLength> packs[kPacks];
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int64_t i = first + (p * kGroup + thread) * kLength;
      if (i + kLength <= size)
        packs[p] = loadPack<kLength>(x + i, isAligned);
    }
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int64_t i = first + (p * kGroup + thread) * kLength;
      if (i + kLength <= size)
#pragma unroll
        for (int v = 0; v < kLength; ++v)
          include(packs[p].elements[v]);
    }
  }
  if (thread < size % kLength)
    include(x[size - 1 - thread]);
  return range;
}

/// Returns the scale of a block of sign codes, twice the mean magnitude, added
/// in the order of docs/quantization.md. All lanes of a warp compute and get
/// it.
template <class Element>
__device__ __forceinline__ AffineScale findMagnitude(const ElemOf<Element> *x,
                                                     int64_t size) {
  constexpr int kSums = 16, kSteps = 8;
  const int lane = static_cast<int>(threadIdx.x % kLanes);
  // Lane k, below 16, has partial sum k; lane k + 16 loads for it.
  double sum = 0;
  for (int64_t first = 0; first < size; first += kSteps * kLanes) {
    double magnitudes[kSteps];
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const int64_t i = first + s * kLanes + lane;
      magnitudes[s] =
          i < size ? fabs(static_cast<double>(Element::widen(x[i]))) : 0.0;
    }
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const double other = __shfl_xor_sync(kAllLanes, magnitudes[s], kSums);
      sum += magnitudes[s];
      sum += other;
    }
  }
  double total = 0;
  for (int k = 0; k < kSums; ++k)
    total += __shfl_sync(kAllLanes, sum, k);
  const float twice = 2 * static_cast<float>(total / static_cast<double>(size));
  return F32::isFinite(twice) ? AffineScale{twice, 0.5f} : noScale();
}

//===----------------------------------------------------------------------===//
// Codes.
//===----------------------------------------------------------------------===//

DDPHOOK_HOST_DEVICE float toWhole(float x) { return rintf(x); }
DDPHOOK_HOST_DEVICE double toWhole(double x) { return rint(x); }

// One class per code. encode() converts one element; store() and load() handle
// a quad that starts at code `i`. All lanes of a warp must call store(), with a
// `count` of 0 if necessary. load() returns a word for the quad, also past the
// last code, where memory exists; at() extracts a code from it.

struct Bytes {
  /// True if no quad spans two blocks.
  static constexpr bool kHasWholeQuads = false;
  /// The first kernel's result for a slice of a block.
  using Found = Range;

  /// Returns the scale of a warp's block.
  template <class Element>
  static __device__ __forceinline__ AffineScale
  findScale(const ElemOf<Element> *x, int64_t size, bool isExact) {
    const int lane = static_cast<int>(threadIdx.x % kLanes);
    Range range = findRange<Element, kLanes>(x, size, lane);
    for (int offset = kLanes / 2; offset > 0; offset /= 2) {
      const float below = __shfl_xor_sync(kAllLanes, range.below, offset);
      const float above = __shfl_xor_sync(kAllLanes, range.above, offset);
      range.below = below > range.below ? below : range.below;
      range.above = above > range.above ? above : range.above;
    }
    return scaleOf(range, isExact);
  }
  /// The numbers of shared memory that the two functions below need.
  static constexpr int kRoom = blockSumRoom(1);
  /// Returns the union of all threads' ranges.
  static __device__ __forceinline__ Range overBlock(const Range &range,
                                                    float *room) {
    return {maxOverBlock(range.below, room), maxOverBlock(range.above, room)};
  }
  /// Returns the scale of a block from the results of its slices.
  static __device__ __forceinline__ AffineScale
  scaleOfSlices(const Range *found, int slices, float *room, bool isExact) {
    Range range = {0, 0};
    for (int s = static_cast<int>(threadIdx.x); s < slices;
         s += kAffineThreads) {
      range.include(found[s].above);
      range.include(-found[s].below);
    }
    return scaleOf(overBlock(range, room), isExact);
  }

  template <class Element>
  static DDPHOOK_HOST_DEVICE unsigned
  encode(ComputeOf<Element> x, const AffineScale &scale, bool isExact) {
    using T = ComputeOf<Element>;
    // PyTorch's kernel divides by a scale of the elements' type.
    const T step = static_cast<T>(scale.scale);
    const T divisor = isExact ? step : roundTo<Element>(step);
    const T whole = toWhole(roundTo<Element>(x / divisor));
    const T code = roundTo<Element>(whole + static_cast<T>(scale.zero));
    // Blocks without a scale have zeros.
    if (!(code > 0))
      return 0;
    return code < kLargestByte ? static_cast<unsigned>(code)
                               : static_cast<unsigned>(kLargestByte);
  }
  static __device__ __forceinline__ void
  store(const unsigned (&codes)[kQuad], void *array, int64_t i, int count) {
    auto *to = static_cast<uint8_t *>(array) + i;
    Pack<uint8_t, kQuad> quad;
    for (int v = 0; v < kQuad; ++v)
      quad.elements[v] = static_cast<uint8_t>(codes[v]);
    if (count == kQuad)
      return storePack(to, quad, isAlignedForPacks<kQuad>(to));
#pragma unroll
    for (int v = 0; v < kQuad; ++v)
      if (v < count)
        to[v] = quad.elements[v];
  }
  static __device__ __forceinline__ Pack<uint8_t, kQuad>
  load(const unsigned char *array, int64_t i) {
    return loadPack<kQuad>(array + i, /*isAligned=*/true);
  }
  static __device__ __forceinline__ unsigned
  at(const Pack<uint8_t, kQuad> &quad, int64_t, int v) {
    return quad.elements[v];
  }
};

/// Eight codes per byte; pairs of lanes share the quads of a byte.
struct Signs {
  static constexpr bool kHasWholeQuads = true;
  using Found = AffineScale;

  template <class Element>
  static __device__ __forceinline__ AffineScale
  findScale(const ElemOf<Element> *x, int64_t size, bool) {
    return findMagnitude<Element>(x, size);
  }
  static constexpr int kRoom = 0;
  static __device__ __forceinline__ AffineScale
  scaleOfSlices(const AffineScale *found, int, float *, bool) {
    return found[0];
  }

  template <class Element>
  static DDPHOOK_HOST_DEVICE unsigned encode(ComputeOf<Element> x,
                                             const AffineScale &, bool) {
    return x < 0 ? 0 : 1;
  }
  static __device__ __forceinline__ void
  store(const unsigned (&codes)[kQuad], void *array, int64_t i, int count) {
    unsigned half = 0;
    for (int v = 0; v < kQuad; ++v)
      half |= codes[v] << v;
    const unsigned other = __shfl_xor_sync(kAllLanes, half, 1);
    if (count > 0 && i % 8 == 0)
      static_cast<uint8_t *>(array)[i / 8] =
          static_cast<uint8_t>(half | other << kQuad);
  }
  static __device__ __forceinline__ unsigned load(const unsigned char *array,
                                                  int64_t i) {
    return array[i / 8];
  }
  static __device__ __forceinline__ unsigned at(unsigned byte, int64_t i,
                                                int v) {
    return byte >> (i % 8 + v) & 1u;
  }
};

/// Adds the value of a code to a sum.
DDPHOOK_HOST_DEVICE float addCode(float sum, unsigned code,
                                  const AffineScale &scale) {
  return sum + scale.scale * (static_cast<float>(code) - scale.zero);
}

} // namespace ddphook::cuda
