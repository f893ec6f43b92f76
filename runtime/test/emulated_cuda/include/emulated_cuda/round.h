// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One rounding for every 16-bit type, from a double: a float is one of those,
// so that no value is rounded twice.

#pragma once

#include <cstdint>
#include <cstring>

namespace emulated_cuda {

inline float floatOfBits(uint32_t bits) {
  float result;
  std::memcpy(&result, &bits, sizeof(result));
  return result;
}

/// The bits of the nearest number, ties to even, with one sign bit and the
/// given numbers of exponent and mantissa bits. `value` is not a NaN.
inline uint16_t roundToNearest16(double value, int exponentBits,
                                 int mantissaBits) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  const uint16_t sign = static_cast<uint16_t>(bits >> 48 & 0x8000);
  const int bias = (1 << (exponentBits - 1)) - 1;
  const uint16_t infinity =
      static_cast<uint16_t>(((1 << exponentBits) - 1) << mantissaBits);
  int exponent = static_cast<int>(bits >> 52 & 0x7ff) - 1023;
  uint64_t mantissa = bits & ((1ull << 52) - 1);
  if (exponent > bias)
    return sign | infinity;
  // Subnormal doubles are far below half of the least number of either type.
  if (exponent == -1023)
    return sign;
  mantissa |= 1ull << 52;

  // Bits to drop; more of them where the result is subnormal.
  int shift = 52 - mantissaBits;
  int field = exponent + bias;
  if (field < 1) {
    shift += 1 - field;
    field = 1;
  }
  if (shift > 54)
    return sign;
  uint64_t kept = mantissa >> shift;
  uint64_t dropped = mantissa & ((1ull << shift) - 1);
  uint64_t half = 1ull << (shift - 1);
  if (dropped > half || (dropped == half && (kept & 1)))
    ++kept;
  // The implicit one adds itself to the field, and a carry does so too: up to
  // infinity, and from the subnormal numbers to the normal ones.
  uint64_t result = (static_cast<uint64_t>(field - 1) << mantissaBits) + kept;
  return static_cast<uint16_t>(sign | result);
}

} // namespace emulated_cuda
