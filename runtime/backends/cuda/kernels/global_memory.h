// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loads and stores with a cache policy for the L2 cache, and asynchronous
// copies to shared memory. The emulated device counts them.

#pragma once

#include "launch.h"

#include <cuda_pipeline_primitives.h>

#include <type_traits>

namespace ddphook::cuda {

/// The policy for a line: keep it in the L2 cache for a later stage, or evict
/// it first, because nobody needs it soon.
enum class Cache { Keep, Stream };

template <>
struct Word<2> {
  using Type = unsigned short;
};

/// Loads `kCount` elements at once; `p` must be aligned to their total size.
template <Cache kCache, int kCount, class T>
__device__ __forceinline__ Pack<T, kCount> loadGlobal(const T *p) {
  using Type = typename Word<sizeof(Pack<T, kCount>)>::Type;
  const auto *from = reinterpret_cast<const Type *>(p);
  const Type word = kCache == Cache::Stream ? __ldcs(from) : __ldca(from);
  Pack<T, kCount> pack;
  memcpy(&pack, &word, sizeof(pack));
  return pack;
}

template <Cache kCache, int kCount, class T>
__device__ __forceinline__ void storeGlobal(T *p, const Pack<T, kCount> &pack) {
  using Type = typename Word<sizeof(pack)>::Type;
  Type word;
  memcpy(&word, &pack, sizeof(pack));
  auto *to = reinterpret_cast<Type *>(p);
  if (kCache == Cache::Stream)
    __stcs(to, word);
  else
    __stwb(to, word);
}

template <Cache kCache, class T>
__device__ __forceinline__ T loadElement(const T *p) {
  return loadGlobal<kCache, 1>(p).elements[0];
}

template <Cache kCache, class T>
__device__ __forceinline__ void storeElement(T *p, T value) {
  storeGlobal<kCache, 1>(p, Pack<T, 1>{{value}});
}

/// Calls fn(std::bool_constant<condition>()), so that a branch contains all
/// loads of one kind and they are in flight together.
template <class Fn>
__device__ __forceinline__ void withBool(bool condition, const Fn &fn) {
  if (condition)
    fn(std::true_type());
  else
    fn(std::false_type());
}

/// Loads elements begin … end - 1 of a pack, or all if `isWhole`; the others
/// are zeros.
template <Cache kCache, int kCount, class T>
__device__ __forceinline__ Pack<T, kCount> loadPart(const T *p, int begin,
                                                    int end, bool isWhole) {
  if (isWhole)
    return loadGlobal<kCache, kCount>(p);
  Pack<T, kCount> pack = {};
#pragma unroll
  for (int v = 0; v < kCount; ++v)
    if (v >= begin && v < end)
      pack.elements[v] = loadElement<kCache>(p + v);
  return pack;
}

template <Cache kCache, int kCount, class T>
__device__ __forceinline__ void storePart(T *p, const Pack<T, kCount> &pack,
                                          int begin, int end, bool isWhole) {
  if (isWhole)
    return storeGlobal<kCache>(p, pack);
#pragma unroll
  for (int v = 0; v < kCount; ++v)
    if (v >= begin && v < end)
      storeElement<kCache>(p + v, pack.elements[v]);
}

/// Starts to load the line of `p` into the L2 cache.
__device__ __forceinline__ void prefetchGlobal(const void *p) {
#ifdef __CUDA_ARCH__
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
#else
  (void)p;
#endif
}

/// Starts to copy kBytes; the thread's waitForCopies() waits for the copy.
template <int kBytes>
__device__ __forceinline__ void copyToShared(void *shared, const void *global) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16,
                "expected what one instruction copies");
  __pipeline_memcpy_async(shared, global, kBytes);
}

/// Makes the thread's copies so far a group.
__device__ __forceinline__ void commitCopies() { __pipeline_commit(); }
/// Waits for all groups of the thread except the last `kPrior`.
template <int kPrior>
__device__ __forceinline__ void waitForCopies() {
  __pipeline_wait_prior(kPrior);
}

} // namespace ddphook::cuda
