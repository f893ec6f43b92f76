// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Arithmetic with a stated rounding, reinterpretation of bits, loads and stores
// with a cache policy, fences and atomics.
//
// The host rounds to the nearest, ties to even, like the _rn functions; what
// keeps the compiler from fusing a product and a sum, as it does with the bare
// operators, is that the product passes through a volatile-like barrier.

#pragma once

#include "emulated_cuda/traffic.h"
#include "emulated_cuda/vector_types.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace emulated_cuda {

template <typename To, typename From>
To bitCast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(To));
  return to;
}

/// A value of which the compiler no longer knows where it comes from.
template <typename T>
T opaque(T value) {
#if defined(__x86_64__)
  __asm__("" : "+x"(value));
#elif defined(__aarch64__)
  __asm__("" : "+w"(value));
#else
#error "expected x86-64 or AArch64"
#endif
  return value;
}

} // namespace emulated_cuda

inline float __fadd_rn(float a, float b) {
  return emulated_cuda::opaque(a + b);
}
inline float __fsub_rn(float a, float b) {
  return emulated_cuda::opaque(a - b);
}
inline float __fmul_rn(float a, float b) {
  return emulated_cuda::opaque(a * b);
}
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline double __dadd_rn(double a, double b) {
  return emulated_cuda::opaque(a + b);
}
inline double __dsub_rn(double a, double b) {
  return emulated_cuda::opaque(a - b);
}
inline double __dmul_rn(double a, double b) {
  return emulated_cuda::opaque(a * b);
}
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __dsqrt_rn(double a) { return std::sqrt(a); }
inline double __drcp_rn(double a) { return 1.0 / a; }
inline double __fma_rn(double a, double b, double c) {
  return std::fma(a, b, c);
}

inline unsigned __float_as_uint(float a) {
  return emulated_cuda::bitCast<unsigned>(a);
}
inline int __float_as_int(float a) { return emulated_cuda::bitCast<int>(a); }
inline float __uint_as_float(unsigned a) {
  return emulated_cuda::bitCast<float>(a);
}
inline float __int_as_float(int a) { return emulated_cuda::bitCast<float>(a); }
inline long long __double_as_longlong(double a) {
  return emulated_cuda::bitCast<long long>(a);
}
inline double __longlong_as_double(long long a) {
  return emulated_cuda::bitCast<double>(a);
}
/// Rounds as a cast does; with CUDA's name.
inline float __double2float_rn(double a) { return static_cast<float>(a); }
inline int __popc(unsigned a) { return __builtin_popcount(a); }
inline int __clz(int a) {
  return a == 0 ? 32 : __builtin_clz(static_cast<unsigned>(a));
}
inline int __ffs(int a) { return __builtin_ffs(a); }

namespace emulated_cuda {

/// A load or a store of one instruction: its address is a multiple of its size.
template <typename T>
void checkAlignment(const void *address) {
  if (reinterpret_cast<uintptr_t>(address) % sizeof(T) == 0)
    return;
  std::fprintf(stderr,
               "emulated CUDA: misaligned address %p of a load or store of %zu "
               "bytes\n",
               address, sizeof(T));
  std::abort();
}

template <typename T>
T load(const T *address, Accesses Traffic::*kind) {
  checkAlignment<T>(address);
  if (runningTraffic)
    (runningTraffic->*kind).add(sizeof(T));
  T value;
  std::memcpy(&value, address, sizeof(T));
  return value;
}
template <typename T>
void store(T *address, T value, Accesses Traffic::*kind) {
  checkAlignment<T>(address);
  if (runningTraffic)
    (runningTraffic->*kind).add(sizeof(T));
  std::memcpy(static_cast<void *>(address), &value, sizeof(T));
}

} // namespace emulated_cuda

// Loads and stores with a cache policy. A policy changes nothing but what is
// counted.
#define EMULATED_CUDA_LOAD(name, kind)                                         \
  template <typename T>                                                        \
  T name(const T *address) {                                                   \
    return emulated_cuda::load(address, &emulated_cuda::Traffic::kind);        \
  }
#define EMULATED_CUDA_STORE(name, kind)                                        \
  template <typename T>                                                        \
  void name(T *address, T value) {                                             \
    emulated_cuda::store(address, value, &emulated_cuda::Traffic::kind);       \
  }
EMULATED_CUDA_LOAD(__ldg, loads)
EMULATED_CUDA_LOAD(__ldca, loads)
EMULATED_CUDA_LOAD(__ldcg, loads)
EMULATED_CUDA_LOAD(__ldcs, streamedLoads)
EMULATED_CUDA_STORE(__stwb, stores)
EMULATED_CUDA_STORE(__stcg, stores)
EMULATED_CUDA_STORE(__stwt, stores)
EMULATED_CUDA_STORE(__stcs, streamedStores)
#undef EMULATED_CUDA_LOAD
#undef EMULATED_CUDA_STORE

inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

#define EMULATED_CUDA_ATOMIC(name, type, builtin)                              \
  inline type name(type *address, type value) {                                \
    return builtin(address, value, __ATOMIC_RELAXED);                          \
  }
EMULATED_CUDA_ATOMIC(atomicAdd, int, __atomic_fetch_add)
EMULATED_CUDA_ATOMIC(atomicAdd, unsigned, __atomic_fetch_add)
EMULATED_CUDA_ATOMIC(atomicAdd, unsigned long long, __atomic_fetch_add)
EMULATED_CUDA_ATOMIC(atomicSub, int, __atomic_fetch_sub)
EMULATED_CUDA_ATOMIC(atomicSub, unsigned, __atomic_fetch_sub)
EMULATED_CUDA_ATOMIC(atomicOr, int, __atomic_fetch_or)
EMULATED_CUDA_ATOMIC(atomicOr, unsigned, __atomic_fetch_or)
EMULATED_CUDA_ATOMIC(atomicOr, unsigned long long, __atomic_fetch_or)
EMULATED_CUDA_ATOMIC(atomicAnd, int, __atomic_fetch_and)
EMULATED_CUDA_ATOMIC(atomicAnd, unsigned, __atomic_fetch_and)
EMULATED_CUDA_ATOMIC(atomicExch, int, __atomic_exchange_n)
EMULATED_CUDA_ATOMIC(atomicExch, unsigned, __atomic_exchange_n)
EMULATED_CUDA_ATOMIC(atomicExch, unsigned long long, __atomic_exchange_n)
#undef EMULATED_CUDA_ATOMIC

#define EMULATED_CUDA_ATOMIC_CAS(type)                                         \
  inline type atomicCAS(type *address, type compare, type value) {             \
    __atomic_compare_exchange_n(address, &compare, value, false,               \
                                __ATOMIC_RELAXED, __ATOMIC_RELAXED);           \
    return compare;                                                            \
  }                                                                            \
  inline type atomicMax(type *address, type value) {                           \
    type old = __atomic_load_n(address, __ATOMIC_RELAXED);                     \
    while (old < value &&                                                      \
           !__atomic_compare_exchange_n(address, &old, value, false,           \
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED)) { \
    }                                                                          \
    return old;                                                                \
  }
EMULATED_CUDA_ATOMIC_CAS(int)
EMULATED_CUDA_ATOMIC_CAS(unsigned)
EMULATED_CUDA_ATOMIC_CAS(unsigned long long)
#undef EMULATED_CUDA_ATOMIC_CAS

#define EMULATED_CUDA_ATOMIC_FLOAT(type)                                       \
  inline type atomicAdd(type *address, type value) {                           \
    type old;                                                                  \
    __atomic_load(address, &old, __ATOMIC_RELAXED);                            \
    type sum = old + value;                                                    \
    while (!__atomic_compare_exchange(address, &old, &sum, false,              \
                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED))     \
      sum = old + value;                                                       \
    return old;                                                                \
  }
EMULATED_CUDA_ATOMIC_FLOAT(float)
EMULATED_CUDA_ATOMIC_FLOAT(double)
#undef EMULATED_CUDA_ATOMIC_FLOAT
