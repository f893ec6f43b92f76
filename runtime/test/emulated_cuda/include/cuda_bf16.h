// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The storage types and the conversions, bit for bit what the device gives: to
// the nearest, ties to even; a NaN becomes the canonical one when it is
// rounded, and keeps its bits when it is widened.

#pragma once

#include "cuda_runtime_api.h"
#include "emulated_cuda/round.h"

struct __nv_bfloat16_raw {
  unsigned short x;
};
struct __nv_bfloat16 {
  __nv_bfloat16() = default;
  constexpr __nv_bfloat16(const __nv_bfloat16_raw &raw) : bits(raw.x) {}
  constexpr operator __nv_bfloat16_raw() const { return {bits}; }

private:
  unsigned short bits;
};
typedef __nv_bfloat16 nv_bfloat16;

struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
typedef __nv_bfloat162 nv_bfloat162;

inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 h) {
  return static_cast<__nv_bfloat16_raw>(h).x;
}
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
  return __nv_bfloat16(__nv_bfloat16_raw{bits});
}

inline __nv_bfloat16 __double2bfloat16(double a) {
  unsigned short bits =
      a != a ? 0x7fff : emulated_cuda::roundToNearest16(a, 8, 7);
  return __ushort_as_bfloat16(bits);
}
inline __nv_bfloat16 __float2bfloat16_rn(float a) {
  return __double2bfloat16(a);
}
inline __nv_bfloat16 __float2bfloat16(float a) { return __double2bfloat16(a); }
inline float __bfloat162float(__nv_bfloat16 h) {
  return emulated_cuda::floatOfBits(
      static_cast<unsigned>(__bfloat16_as_ushort(h)) << 16);
}

inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) {
  return {a, b};
}
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 a) { return a.x; }
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 a) { return a.y; }
inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) {
  return {__float2bfloat16_rn(a), __float2bfloat16_rn(b)};
}
inline __nv_bfloat162 __float22bfloat162_rn(float2 a) {
  return __floats2bfloat162_rn(a.x, a.y);
}
inline float2 __bfloat1622float2(__nv_bfloat162 a) {
  return {__bfloat162float(a.x), __bfloat162float(a.y)};
}
