// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Has one class per element type, all with the same members, and the arithmetic
// of the kernels on single elements. Every function is the same on the host and
// on the device, so that a machine without a device tests it bit by bit. The
// only exception: the device's own instructions convert between f32 and 16-bit
// types. They round in the same way and differ only in the bits of NaNs.
//
// Needs no CUDA header and no CUDA compiler. Must be compiled without
// contracting a product and a sum into one operation.

#pragma once

#include "base/dtype.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define DDPHOOK_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define DDPHOOK_HOST_DEVICE inline
#endif

namespace ddphook::cuda {

DDPHOOK_HOST_DEVICE uint32_t bitsOf(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}
DDPHOOK_HOST_DEVICE uint64_t bitsOf(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}
DDPHOOK_HOST_DEVICE float floatOf(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

//===----------------------------------------------------------------------===//
// Element types.
//===----------------------------------------------------------------------===//

/// Stored as `Elem`; computed as `Compute`.
template <class T, Dtype kType, auto kExponentBits>
struct WideFloat {
  static constexpr Dtype type = kType;
  using Elem = T;
  using Compute = T;

  static DDPHOOK_HOST_DEVICE T widen(T x) { return x; }
  static DDPHOOK_HOST_DEVICE T narrow(T x) { return x; }
  static DDPHOOK_HOST_DEVICE bool isFinite(T x) {
    return (bitsOf(x) & kExponentBits) != kExponentBits;
  }
};
struct F32 : WideFloat<float, Dtype::F32, 0x7f800000u> {};
struct F64 : WideFloat<double, Dtype::F64, uint64_t(0x7ff) << 52> {};

struct F16 {
  static constexpr Dtype type = Dtype::F16;
  using Elem = uint16_t;
  using Compute = float;

  static DDPHOOK_HOST_DEVICE float widen(uint16_t h) {
#ifdef __CUDA_ARCH__
    return __half2float(__ushort_as_half(h));
#else
    const uint32_t sign = uint32_t(h & 0x8000u) << 16;
    const uint32_t exponent = h >> 10 & 0x1fu, fraction = h & 0x3ffu;
    if (exponent == 0) {
      // Exact: a multiple of 2^-24, the last place of a subnormal.
      const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
      return floatOf(bitsOf(magnitude) | sign);
    }
    const uint32_t biased = exponent == 0x1f ? 0xff : exponent + (127 - 15);
    return floatOf(sign | biased << 23 | fraction << 13);
#endif
  }
  static DDPHOOK_HOST_DEVICE uint16_t narrow(float x) {
#ifdef __CUDA_ARCH__
    return __half_as_ushort(__float2half_rn(x));
#else
    const uint32_t all = bitsOf(x), magnitude = all & 0x7fffffffu;
    const auto sign = static_cast<uint16_t>(all >> 16 & 0x8000u);
    uint32_t result;
    if (magnitude > 0x7f800000u) {
      result = 0x7e00;
    } else if (magnitude >= (127 + 16) << 23) {
      result = 0x7c00;
    } else if (magnitude >= (127 - 14) << 23) {
      // Adding half of the last remaining place, less one, plus its parity
      // rounds to nearest even; the carry into the exponent is right.
      const uint32_t odd = magnitude >> 13 & 1;
      result = (magnitude - ((127 - 15) << 23) + 0xfffu + odd) >> 13;
    } else {
      // Adding 0.5 makes the addition round at 2^-24.
      const float shifted = floatOf(magnitude) + 0.5f;
      result = bitsOf(shifted) - bitsOf(0.5f);
    }
    return static_cast<uint16_t>(result | sign);
#endif
  }
  static DDPHOOK_HOST_DEVICE bool isFinite(uint16_t h) {
    return (h & 0x7c00u) != 0x7c00u;
  }
};

struct BF16 {
  static constexpr Dtype type = Dtype::BF16;
  using Elem = uint16_t;
  using Compute = float;

  static DDPHOOK_HOST_DEVICE float widen(uint16_t h) {
    return floatOf(uint32_t(h) << 16);
  }
  static DDPHOOK_HOST_DEVICE uint16_t narrow(float x) {
#ifdef __CUDA_ARCH__
    return __bfloat16_as_ushort(__float2bfloat16_rn(x));
#else
    const uint32_t bits = bitsOf(x);
    // The addition could carry a NaN into infinity or past it.
    if ((bits & 0x7fffffffu) > 0x7f800000u)
      return 0x7fc0;
    const uint32_t odd = bits >> 16 & 1;
    return static_cast<uint16_t>((bits + 0x7fffu + odd) >> 16);
#endif
  }
  static DDPHOOK_HOST_DEVICE bool isFinite(uint16_t h) {
    return (h & 0x7f80u) != 0x7f80u;
  }
};

template <class Element>
using ElemOf = typename Element::Elem;
template <class Element>
using ComputeOf = typename Element::Compute;

//===----------------------------------------------------------------------===//
// Arithmetic.
//===----------------------------------------------------------------------===//

/// Converts to another type; from f64 to a 16-bit type through f32.
template <class In, class Out>
DDPHOOK_HOST_DEVICE ElemOf<Out> convertElement(ElemOf<In> x) {
  if constexpr (std::is_same_v<In, Out>)
    return x;
  else
    return Out::narrow(static_cast<ComputeOf<Out>>(In::widen(x)));
}

/// Returns what remains of a computed value when it is stored.
template <class Element>
DDPHOOK_HOST_DEVICE ComputeOf<Element> roundTo(ComputeOf<Element> x) {
  return Element::widen(Element::narrow(x));
}

/// A whole number to divide by. PyTorch multiplies a CUDA tensor by the rounded
/// inverse of a number, in the type in which it computes; hosts divide exactly.
struct Divisor {
  constexpr Divisor(int64_t number, bool isExact = false)
      : number(number), isExact(isExact) {}

  /// Returns the factor by which products have the wanted bits, or 0 if only a
  /// division gives them, which takes a device some ten instructions. The
  /// inverse of a power of two is exact.
  template <class T>
  T factor() const {
    const bool isPower = (number & (number - 1)) == 0;
    return isExact && !isPower ? T(0) : 1 / static_cast<T>(number);
  }

  int64_t number;
  bool isExact;
};

template <class Element>
DDPHOOK_HOST_DEVICE ElemOf<Element> divideElement(ElemOf<Element> x,
                                                  ComputeOf<Element> divisor) {
  return Element::narrow(Element::widen(x) / divisor);
}
template <class Element>
DDPHOOK_HOST_DEVICE ElemOf<Element> scaleElement(ElemOf<Element> x,
                                                 ComputeOf<Element> factor) {
  return Element::narrow(Element::widen(x) * factor);
}
template <class Element>
DDPHOOK_HOST_DEVICE ElemOf<Element> addElements(ElemOf<Element> a,
                                                ElemOf<Element> b) {
  return Element::narrow(Element::widen(a) + Element::widen(b));
}
template <class Element>
DDPHOOK_HOST_DEVICE ElemOf<Element> subtractElements(ElemOf<Element> a,
                                                     ElemOf<Element> b) {
  return Element::narrow(Element::widen(a) - Element::widen(b));
}

/// Returns a * b + c with one rounding.
DDPHOOK_HOST_DEVICE float multiplyAdd(float a, float b, float c) {
  return fmaf(a, b, c);
}
DDPHOOK_HOST_DEVICE double multiplyAdd(double a, double b, double c) {
  return fma(a, b, c);
}

/// The scalars of LAPACK's larfg: H = I - tau·v·vᵀ with v = (1, factor·x) maps
/// (pivot, x) to a multiple of the first unit vector, with the sign opposite to
/// the pivot's. The sign of zero is ignored: a zero in a product has no
/// guaranteed sign. `below` is the sum of squares of x and must not be 0.
template <class T>
struct Reflector {
  T tau;
  T factor;
};
template <class T>
DDPHOOK_HOST_DEVICE Reflector<T> makeReflector(T pivot, T below) {
  const double wide = pivot;
  const double norm = std::sqrt(wide * wide + static_cast<double>(below));
  const double beta = wide < 0 ? norm : -norm;
  return {static_cast<T>((beta - wide) / beta),
          static_cast<T>(1 / (wide - beta))};
}

} // namespace ddphook::cuda
