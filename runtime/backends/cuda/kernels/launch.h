// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Launches use cudaLaunchKernelEx(), which is a function call to every
// compiler. Dynamic shared memory has the same name in all kernels. Packs are
// loaded or stored by a thread with one instruction.

#pragma once

#include "base/dtype.h"
#include "elements.h"

#include <cuda_runtime.h>

#include <cstdint>
#include <limits>

namespace ddphook::cuda {

#ifdef __CUDACC__
extern __shared__ __align__(16) unsigned char dynamicSharedBytes[];
#endif

/// Returns the block's dynamic shared memory, aligned to 16 bytes.
template <class T>
__device__ __forceinline__ T *dynamicShared() {
#ifdef __CUDACC__
  return reinterpret_cast<T *>(dynamicSharedBytes);
#else
  return static_cast<T *>(emulatedDynamicShared());
#endif
}

/// Launches `blocks` blocks, if any, on a one-dimensional grid.
template <class... Parameters, class... Arguments>
cudaError_t launch(cudaStream_t stream, int64_t blocks, int threads,
                   int64_t sharedBytes, void (*kernel)(Parameters...),
                   Arguments &&...arguments) {
  if (blocks == 0)
    return cudaSuccess;
  if (blocks > std::numeric_limits<int32_t>::max())
    return cudaErrorInvalidConfiguration;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(sharedBytes);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel,
                            static_cast<Parameters>(arguments)...);
}

/// Returns `value` but hides its origin from the compiler, which then cannot
/// keep an address for each of its uses from one iteration to the next.
__device__ __forceinline__ int64_t opaque(int64_t value) {
#ifdef __CUDA_ARCH__
  asm volatile("" : "+l"(value));
#endif
  return value;
}

/// `kCount` elements that are loaded and stored at once if their address
/// permits.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T elements[kCount];
};

/// The number of elements of a type in 16 bytes.
template <class T>
constexpr int kPackLength = static_cast<int>(16 / sizeof(T));

template <int kCount, class T>
__host__ __device__ __forceinline__ bool isAlignedForPacks(const T *p) {
  return reinterpret_cast<uintptr_t>(p) % (sizeof(T) * kCount) == 0;
}

/// The type of one load or store of kBytes bytes.
template <int kBytes>
struct Word;
template <>
struct Word<4> {
  using Type = unsigned;
};
template <>
struct Word<8> {
  using Type = uint2;
};
template <>
struct Word<16> {
  using Type = uint4;
};

template <int kCount, class T>
__device__ __forceinline__ Pack<T, kCount> loadPack(const T *p,
                                                    bool isAligned) {
  Pack<T, kCount> pack;
  if (isAligned) {
#ifdef __CUDA_ARCH__
    using Type = typename Word<sizeof(pack)>::Type;
    const Type word = *reinterpret_cast<const Type *>(p);
    memcpy(&pack, &word, sizeof(pack));
#else
    memcpy(&pack, p, sizeof(pack));
#endif
    return pack;
  }
#pragma unroll
  for (int v = 0; v < kCount; ++v)
    pack.elements[v] = p[v];
  return pack;
}

template <int kCount, class T>
__device__ __forceinline__ void storePack(T *p, const Pack<T, kCount> &pack,
                                          bool isAligned) {
  if (isAligned) {
#ifdef __CUDA_ARCH__
    typename Word<sizeof(pack)>::Type word;
    memcpy(&word, &pack, sizeof(pack));
    // The compiler may split a plain store again.
    __stwb(reinterpret_cast<decltype(word) *>(p), word);
#else
    memcpy(p, &pack, sizeof(pack));
#endif
    return;
  }
#pragma unroll
  for (int v = 0; v < kCount; ++v)
    p[v] = pack.elements[v];
}

/// Calls fn(Element()) with the class of `type` and returns its result.
template <class Fn>
cudaError_t withElement(Dtype type, const Fn &fn) {
  switch (type) {
  case Dtype::F16:
    return fn(F16());
  case Dtype::BF16:
    return fn(BF16());
  case Dtype::F32:
    return fn(F32());
  case Dtype::F64:
    return fn(F64());
  }
  return cudaErrorInvalidValue;
}

} // namespace ddphook::cuda
