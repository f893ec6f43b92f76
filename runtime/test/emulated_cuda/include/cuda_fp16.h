// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The storage types and the conversions, bit for bit what the device gives: to
// the nearest, ties to even; a NaN becomes the canonical one, in both
// directions.

#pragma once

#include "cuda_runtime_api.h"
#include "emulated_cuda/round.h"

struct __half_raw {
  unsigned short x;
};
struct __half {
  __half() = default;
  constexpr __half(const __half_raw &raw) : bits(raw.x) {}
  constexpr operator __half_raw() const { return {bits}; }

private:
  unsigned short bits;
};
typedef __half half;

struct alignas(4) __half2 {
  __half x, y;
};
typedef __half2 half2;

inline unsigned short __half_as_ushort(__half h) {
  return static_cast<__half_raw>(h).x;
}
inline __half __ushort_as_half(unsigned short bits) {
  return __half(__half_raw{bits});
}

inline __half __double2half(double a) {
  unsigned short bits =
      a != a ? 0x7fff : emulated_cuda::roundToNearest16(a, 5, 10);
  return __ushort_as_half(bits);
}
inline __half __float2half_rn(float a) { return __double2half(a); }
inline __half __float2half(float a) { return __double2half(a); }
inline float __half2float(__half h) {
  unsigned bits = __half_as_ushort(h);
  unsigned sign = (bits & 0x8000) << 16;
  unsigned exponent = bits >> 10 & 0x1f;
  unsigned mantissa = bits & 0x3ff;
  if (exponent == 0x1f)
    return emulated_cuda::floatOfBits(mantissa ? 0x7fffffff
                                               : sign | 0x7f800000);
  if (exponent == 0) {
    // An exact product: the unit of subnormal numbers is 2^-24.
    float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  return emulated_cuda::floatOfBits(sign | (exponent + 112) << 23 |
                                    mantissa << 13);
}

inline __half2 __halves2half2(__half a, __half b) { return {a, b}; }
inline __half __low2half(__half2 a) { return a.x; }
inline __half __high2half(__half2 a) { return a.y; }
inline __half2 __floats2half2_rn(float a, float b) {
  return {__float2half_rn(a), __float2half_rn(b)};
}
inline __half2 __float22half2_rn(float2 a) {
  return __floats2half2_rn(a.x, a.y);
}
inline float2 __half22float2(__half2 a) {
  return {__half2float(a.x), __half2float(a.y)};
}
