// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Has one class per code without zero points, all with the same members, and
// converts elements to codes exactly as docs/quantization.md specifies. A
// thread processes four elements at a time, a quad, whose codes are one store
// and whose random numbers are one step of the generator.
//
// Arithmetic is the same on the host and on the device, as in elements.h,
// except for NaNs of casts.

#pragma once

#include "elements.h"
#include "quads.h"

#include <cstdint>

namespace ddphook::cuda {

/// Returns the 8-bit float nearest to a number whose magnitude does not exceed
/// the largest one. Numbers below 2^kLeastExponent have equal distances.
template <int kFractionBits, int kLeastExponent>
DDPHOOK_HOST_DEVICE uint8_t narrowTo8(float x) {
  const uint32_t sign = bitsOf(x) >> 24 & 0x80u;
  const uint32_t magnitude = bitsOf(x) & 0x7fffffffu;
  constexpr int kDropped = 23 - kFractionBits;
  uint32_t result;
  if (magnitude >= uint32_t(127 + kLeastExponent) << 23) {
    const uint32_t odd = magnitude >> kDropped & 1;
    const uint32_t half = (1u << (kDropped - 1)) - 1;
    const uint32_t bias = uint32_t(126 + kLeastExponent) << 23;
    result = (magnitude - bias + half + odd) >> kDropped;
  } else {
    // The last place of the sum is that distance.
    constexpr uint32_t kShift =
        uint32_t(127 + kLeastExponent - kFractionBits + 23) << 23;
    result = bitsOf(floatOf(magnitude) + floatOf(kShift)) - kShift;
  }
  return static_cast<uint8_t>(result | sign);
}

template <int kFractionBits, int kLeastExponent>
DDPHOOK_HOST_DEVICE float widenFrom8(uint8_t code) {
  const uint32_t sign = uint32_t(code & 0x80u) << 24;
  const uint32_t magnitude = code & 0x7fu;
  const uint32_t exponent = magnitude >> kFractionBits;
  if (exponent == 0) {
    constexpr uint32_t kDistance =
        uint32_t(127 + kLeastExponent - kFractionBits) << 23;
    const float value = static_cast<float>(magnitude) * floatOf(kDistance);
    return floatOf(bitsOf(value) | sign);
  }
  constexpr uint32_t kBias = uint32_t(126 + kLeastExponent) << 23;
  return floatOf(sign | (magnitude << (23 - kFractionBits)) + kBias);
}

// Codes load and store the first `count` codes of a quad from code `i` on, a
// multiple of 4; arrays of codes are aligned to 8 bytes.
//
// Scaled codes provide the largest magnitude of a quotient and whether they are
// equidistant. round() returns the decoded value of a quotient's code.

/// Codes of type `Elem`, which `Type` narrows floats to and widens.
template <class Type, class Elem, bool kHasScale>
struct StoredCode {
  static constexpr bool kIsScaled = kHasScale;

  static __device__ __forceinline__ void
  store(const float (&x)[kQuad], void *array, int64_t i, int count) {
    Pack<Elem, kQuad> quad;
    for (int v = 0; v < kQuad; ++v)
      quad.elements[v] = Type::narrow(x[v]);
    Elem *to = static_cast<Elem *>(array) + i;
    if (count == kQuad)
      return storePack(to, quad, /*isAligned=*/true);
    for (int v = 0; v < count; ++v)
      to[v] = quad.elements[v];
  }
  static __device__ __forceinline__ void load(const void *array, int64_t i,
                                              int count, float (&x)[kQuad]) {
    const Elem *from = static_cast<const Elem *>(array) + i;
    Pack<Elem, kQuad> quad = {};
    if (count == kQuad)
      quad = loadPack<kQuad>(from, /*isAligned=*/true);
    else
      for (int v = 0; v < count; ++v)
        quad.elements[v] = from[v];
    for (int v = 0; v < kQuad; ++v)
      x[v] = Type::widen(quad.elements[v]);
  }
  static DDPHOOK_HOST_DEVICE float round(float x) {
    return Type::widen(Type::narrow(x));
  }
};

/// Elements themselves, in 16 bits.
template <class Element>
using CastCode = StoredCode<Element, uint16_t, /*kHasScale=*/false>;

/// Codes of a byte.
template <class CodeT>
using ByteCode = StoredCode<CodeT, uint8_t, /*kHasScale=*/true>;

struct CodeI8 : ByteCode<CodeI8> {
  static constexpr float kLargest = 127;
  static constexpr bool kIsFloat = false;

  static DDPHOOK_HOST_DEVICE uint8_t narrow(float x) {
    return static_cast<uint8_t>(static_cast<int>(rintf(x)));
  }
  static DDPHOOK_HOST_DEVICE float widen(uint8_t code) {
    return static_cast<float>(static_cast<int8_t>(code));
  }
};

template <int kFraction, int kLeast, int kLargestNumber>
struct CodeF8 : ByteCode<CodeF8<kFraction, kLeast, kLargestNumber>> {
  static constexpr float kLargest = kLargestNumber;
  static constexpr bool kIsFloat = true;
  static constexpr int kFractionBits = kFraction, kLeastExponent = kLeast;

  static DDPHOOK_HOST_DEVICE uint8_t narrow(float x) {
    return narrowTo8<kFraction, kLeast>(x);
  }
  static DDPHOOK_HOST_DEVICE float widen(uint8_t code) {
    return widenFrom8<kFraction, kLeast>(code);
  }
};
using CodeF8E4M3FN = CodeF8<3, -6, 448>;
using CodeF8E5M2 = CodeF8<2, -14, 57344>;

/// Two codes per byte, the first in the lower half.
struct CodeI4 {
  static constexpr bool kIsScaled = true;
  static constexpr float kLargest = 7;
  static constexpr bool kIsFloat = false;

  static __device__ __forceinline__ void
  store(const float (&x)[kQuad], void *array, int64_t i, int count) {
    unsigned quad = 0;
    // A zero follows an odd last code.
    for (int v = 0; v < count; ++v)
      quad |= (static_cast<unsigned>(static_cast<int>(rintf(x[v]))) & 15u)
              << (4 * v);
    auto *to = static_cast<unsigned char *>(array) + i / 2;
    to[0] = static_cast<unsigned char>(quad);
    if (count > 2)
      to[1] = static_cast<unsigned char>(quad >> 8);
  }
  static __device__ __forceinline__ void load(const void *array, int64_t i,
                                              int count, float (&x)[kQuad]) {
    const auto *from = static_cast<const unsigned char *>(array) + i / 2;
    unsigned quad = from[0];
    if (count > 2)
      quad |= static_cast<unsigned>(from[1]) << 8;
    for (int v = 0; v < kQuad; ++v) {
      const int nibble = static_cast<int>(quad >> (4 * v) & 15u);
      x[v] = static_cast<float>((nibble ^ 8) - 8);
    }
  }
  static DDPHOOK_HOST_DEVICE float round(float x) {
    // Codes have no negative zero.
    return static_cast<float>(static_cast<int>(rintf(x)));
  }
};

/// Returns the scale, as a bfloat16, of a block whose largest magnitude has
/// these f32 bits.
template <class CodeT>
DDPHOOK_HOST_DEVICE uint16_t scaleOf(uint32_t largestBits) {
  // All elements of a block with an infinity or a NaN become NaN.
  if (largestBits >= 0x7f800000u)
    return 0x7fc0;
  const uint32_t bits = bitsOf(floatOf(largestBits) / CodeT::kLargest);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/// Returns the value to round to a code: the quotient by the rounded scale.
template <class CodeT>
DDPHOOK_HOST_DEVICE float quotientOf(float x, float scale) {
  // The block has only zeros, or its scale is NaN.
  if (!(scale > 0))
    return 0;
  return fminf(fmaxf(x / scale, -CodeT::kLargest), CodeT::kLargest);
}

//===----------------------------------------------------------------------===//
// Stochastic rounding.
//===----------------------------------------------------------------------===//

/// The Rounding of base/rounding.h, or none, as kernels take it.
struct DeviceRounding {
  bool isStochastic;
  uint32_t key[2];
  uint32_t step, lane;
  int64_t first;
};

/// Returns the four words of a counter: Philox4x32-10 of Salmon, Moraes, Dror
/// and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).
DDPHOOK_HOST_DEVICE void randomWords(const DeviceRounding &rounding,
                                     uint64_t counter, uint32_t (&x)[kQuad]) {
  x[0] = static_cast<uint32_t>(counter);
  x[1] = static_cast<uint32_t>(counter >> 32);
  x[2] = rounding.step;
  x[3] = rounding.lane;
  uint32_t key0 = rounding.key[0], key1 = rounding.key[1];
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t(x[0]) * 0xd2511f53u;
    const uint64_t b = uint64_t(x[2]) * 0xcd9e8d57u;
    x[0] = static_cast<uint32_t>(b >> 32) ^ x[1] ^ key0;
    x[1] = static_cast<uint32_t>(b);
    x[2] = static_cast<uint32_t>(a >> 32) ^ x[3] ^ key1;
    x[3] = static_cast<uint32_t>(a);
    key0 += 0x9e3779b9u;
    key1 += 0xbb67ae85u;
  }
}

/// Rounds a quotient to one of the two nearest codes; the probability of
/// rounding up is the fraction above the lower code.
template <class CodeT>
DDPHOOK_HOST_DEVICE float roundStochastically(float x, uint32_t word) {
  float steps = fabsf(x), step = 1;
  if constexpr (CodeT::kIsFloat) {
    // The distance between codes is a power of two, and so is its inverse.
    constexpr uint32_t least = uint32_t(127 + CodeT::kLeastExponent) << 23;
    const uint32_t exponent = bitsOf(steps) & 0x7f800000u;
    const uint32_t power = (exponent > least ? exponent : least) -
                           (uint32_t(CodeT::kFractionBits) << 23);
    step = floatOf(power);
    steps *= floatOf((uint32_t(254) << 23) - power);
  }
  const float whole = floorf(steps);
  // 24 bits: every multiple of 2^-24 below 1 is a float.
  const float random = static_cast<float>(word >> 8) * 0x1p-24f;
  const float rounded = whole + (random < steps - whole ? 1.0f : 0.0f);
  return copysignf(rounded * step, x);
}

/// Computes the quotients of a quad and rounds them stochastically, if
/// required; storing them rounds to nearest.
template <class CodeT>
DDPHOOK_HOST_DEVICE void quotientsOf(float (&x)[kQuad], float scale,
                                     const DeviceRounding &rounding,
                                     int64_t element) {
  for (int v = 0; v < kQuad; ++v)
    x[v] = quotientOf<CodeT>(x[v], scale);
  if (!rounding.isStochastic)
    return;
  uint32_t words[kQuad];
  randomWords(rounding, static_cast<uint64_t>(rounding.first + element) / 4,
              words);
  for (int v = 0; v < kQuad; ++v)
    x[v] = roundStochastically<CodeT>(x[v], words[v]);
}

} // namespace ddphook::cuda
