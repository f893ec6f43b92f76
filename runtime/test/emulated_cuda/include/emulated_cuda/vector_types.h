// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The vector types that the CUDA backend uses, with CUDA's sizes and
// alignments, and their constructor functions.

#pragma once

#define EMULATED_CUDA_VECTOR2(type, base, alignment)                           \
  struct alignas(alignment) type {                                             \
    base x, y;                                                                 \
  };                                                                           \
  static inline type make_##type(base x, base y) { return {x, y}; }
#define EMULATED_CUDA_VECTOR3(type, base)                                      \
  struct type {                                                                \
    base x, y, z;                                                              \
  };                                                                           \
  static inline type make_##type(base x, base y, base z) { return {x, y, z}; }
#define EMULATED_CUDA_VECTOR4(type, base, alignment)                           \
  struct alignas(alignment) type {                                             \
    base x, y, z, w;                                                           \
  };                                                                           \
  static inline type make_##type(base x, base y, base z, base w) {             \
    return {x, y, z, w};                                                       \
  }

EMULATED_CUDA_VECTOR2(short2, short, 4)
EMULATED_CUDA_VECTOR2(ushort2, unsigned short, 4)
EMULATED_CUDA_VECTOR4(short4, short, 8)
EMULATED_CUDA_VECTOR4(ushort4, unsigned short, 8)
EMULATED_CUDA_VECTOR2(int2, int, 8)
EMULATED_CUDA_VECTOR3(int3, int)
EMULATED_CUDA_VECTOR4(int4, int, 16)
EMULATED_CUDA_VECTOR2(uint2, unsigned int, 8)
EMULATED_CUDA_VECTOR3(uint3, unsigned int)
EMULATED_CUDA_VECTOR4(uint4, unsigned int, 16)
EMULATED_CUDA_VECTOR2(longlong2, long long, 16)
EMULATED_CUDA_VECTOR2(ulonglong2, unsigned long long, 16)
EMULATED_CUDA_VECTOR2(float2, float, 8)
EMULATED_CUDA_VECTOR3(float3, float)
EMULATED_CUDA_VECTOR4(float4, float, 16)
EMULATED_CUDA_VECTOR2(double2, double, 16)

#undef EMULATED_CUDA_VECTOR2
#undef EMULATED_CUDA_VECTOR3
#undef EMULATED_CUDA_VECTOR4

struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1)
      : x(x), y(y), z(z) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return uint3{x, y, z}; }
};
