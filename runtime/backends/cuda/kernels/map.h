// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels that apply a function of convert.cu or arithmetic.cu to the elements
// of one or two arrays.
//
// They are bound by memory. A pack has 16 bytes in the array of the narrowest
// elements, and a multiple of that in the others, so that aligned arrays are
// read and written 16 bytes at a time. A thread has several packs in flight, a
// block's threads apart, before it uses the first. The packs of the output are
// always aligned. Those of an input are read by the widest accesses that its
// address permits, since alignments may differ: writing half a sector costs
// more than reading one twice. The first block processes the elements before
// the first whole pack and after the last.
//
// Blocks are small and many: a multiprocessor gets the next block when one has
// ended, so that none waits long for the last. A persistent grid, as large as
// the device, would divide the work before it is known who is slow.
//
// Loads and stores keep the default cache policy: the next pass or a collective
// reads what a pass over a bucket writes.

#pragma once

#include "global_memory.h"

#include <algorithm>

namespace ddphook::cuda {

constexpr int kMapThreads = 256;
/// The bytes of an array that a thread has in flight.
constexpr size_t kMapBytes = 64;
/// The bytes of the widest access.
constexpr int kWidest = 16;

/// Returns the length of a pack if the smallest element has `size` bytes.
constexpr int packLength(size_t size) { return static_cast<int>(16 / size); }

/// The number of packs per thread if those of an input have kBytes.
template <size_t kBytes>
constexpr int kMapPacks = kBytes < kMapBytes ? kMapBytes / kBytes : 1;

/// Returns the widest access that an address permits.
inline int accessBytes(const void *p) {
  int bytes = kWidest;
  while (reinterpret_cast<uintptr_t>(p) % static_cast<unsigned>(bytes))
    bytes /= 2;
  return bytes;
}

/// How arrays are divided into packs.
struct MapLayout {
  int64_t n;
  /// Elements before the first pack and after the last.
  int head;
  int tail;
  int64_t packs;
  /// Bytes of an access to the first and second inputs; the output uses the
  /// widest.
  int access[2];

  int64_t blocks(int packsOfThread) const {
    const int64_t perBlock = int64_t(kMapThreads) * packsOfThread;
    return std::max<int64_t>(1, (packs + perBlock - 1) / perBlock);
  }
};

/// Returns a layout in which the packs of `lead` are aligned, with the fewest
/// accesses to the inputs. `n` must not be 0.
template <int kLength, class Lead, class In>
MapLayout makeMapLayout(const Lead *lead, const In *a, const In *b, int64_t n) {
  MapLayout best = {};
  int leastAccesses = 0;
  for (int head = 0; head < kLength; ++head) {
    if (accessBytes(lead + head) != kWidest)
      continue;
    const int ofA = accessBytes(a + head), ofB = accessBytes(b + head);
    const int accesses = kWidest / ofA + kWidest / ofB;
    if (leastAccesses != 0 && accesses >= leastAccesses)
      continue;
    leastAccesses = accesses;
    best.head = static_cast<int>(std::min<int64_t>(head, n));
    best.access[0] = ofA;
    best.access[1] = ofB;
  }
  best.n = n;
  best.packs = (n - best.head) / kLength;
  best.tail = static_cast<int>((n - best.head) % kLength);
  return best;
}

/// Loads a pack by accesses of kBytes.
template <int kBytes, int kLength, class T>
__device__ __forceinline__ Pack<T, kLength> loadBy(const T *p) {
  constexpr int kCount = kBytes / static_cast<int>(sizeof(T));
  Pack<T, kLength> pack;
#pragma unroll
  for (int i = 0; i < kLength; i += kCount) {
    const Pack<T, kCount> part = loadGlobal<Cache::Keep, kCount>(p + i);
#pragma unroll
    for (int v = 0; v < kCount; ++v)
      pack.elements[i + v] = part.elements[v];
  }
  return pack;
}

/// Loads a pack by accesses of `bytes` bytes.
template <int kLength, class T>
__device__ __forceinline__ Pack<T, kLength> loadBy(int bytes, const T *p) {
  if (bytes == 16)
    return loadBy<16, kLength>(p);
  if constexpr (sizeof(T) <= 4)
    if (bytes == 8)
      return loadBy<8, kLength>(p);
  if constexpr (sizeof(T) <= 2)
    if (bytes == 4)
      return loadBy<4, kLength>(p);
  return loadBy<static_cast<int>(sizeof(T)), kLength>(p);
}

/// Stores a pack by the widest accesses.
template <int kLength, class T>
__device__ __forceinline__ void storeWidest(T *p,
                                            const Pack<T, kLength> &pack) {
  constexpr int kCount = kWidest / static_cast<int>(sizeof(T));
#pragma unroll
  for (int i = 0; i < kLength; i += kCount) {
    Pack<T, kCount> part;
#pragma unroll
    for (int v = 0; v < kCount; ++v)
      part.elements[v] = pack.elements[i + v];
    storeGlobal<Cache::Keep>(p + i, part);
  }
}

/// Returns the thread's first pack; the next is a block's threads later.
template <int kPacks>
__device__ __forceinline__ int64_t firstPackOfThread() {
  return int64_t(blockIdx.x) * (kMapThreads * kPacks) + threadIdx.x;
}

/// Returns the element of the head or tail that the calling thread processes,
/// or -1.
__device__ __forceinline__ int64_t edgeOfThread(const MapLayout &layout) {
  const int t = static_cast<int>(threadIdx.x);
  if (blockIdx.x != 0 || t >= layout.head + layout.tail)
    return -1;
  return t < layout.head ? t : layout.n - layout.head - layout.tail + t;
}

/// Computes out[i] = function(in[i]), then calls function.finish() in every
/// thread. `out` is null for functions without a result.
template <int kLength, class In, class Out, class Function>
__global__ void __launch_bounds__(kMapThreads)
    mapArray(const In *in, Out *out, MapLayout layout, Function function) {
  constexpr int kPacks = kMapPacks<kLength * sizeof(In)>;
  const int64_t first = firstPackOfThread<kPacks>();
  const In *packed = in + layout.head;
  auto finishPack = [&](int64_t pack, const Pack<In, kLength> &x) {
    Pack<Out, kLength> y;
#pragma unroll
    for (int v = 0; v < kLength; ++v)
      y.elements[v] = function(x.elements[v]);
    if (Function::kHasResult)
      storeWidest(out + layout.head + pack * kLength, y);
  };
  if (layout.access[0] == kWidest) {
    Pack<In, kLength> x[kPacks];
#pragma unroll
    for (int t = 0; t < kPacks; ++t)
      if (first + t * kMapThreads < layout.packs)
        x[t] = loadBy<kWidest, kLength>(packed +
                                        (first + t * kMapThreads) * kLength);
#pragma unroll
    for (int t = 0; t < kPacks; ++t)
      if (first + t * kMapThreads < layout.packs)
        finishPack(first + t * kMapThreads, x[t]);
  } else {
#pragma unroll 1
    for (int t = 0; t < kPacks; ++t) {
      const int64_t pack = first + t * kMapThreads;
      if (pack < layout.packs)
        finishPack(pack,
                   loadBy<kLength>(layout.access[0], packed + pack * kLength));
    }
  }
  const int64_t edge = edgeOfThread(layout);
  if (edge >= 0) {
    const Out y = function(loadElement<Cache::Keep>(in + edge));
    if (Function::kHasResult)
      storeElement<Cache::Keep>(out + edge, y);
  }
  function.finish();
}

/// Computes out[i] = function(a[i], b[i]).
template <int kLength, class T, class Function>
__global__ void __launch_bounds__(kMapThreads)
    mapArrays(const T *a, const T *b, T *out, MapLayout layout,
              Function function) {
  constexpr int kPacks = kMapPacks<kLength * sizeof(T)>;
  const int64_t first = firstPackOfThread<kPacks>();
  auto finishPack = [&](int64_t place, const Pack<T, kLength> &x,
                        const Pack<T, kLength> &y) {
    Pack<T, kLength> z;
#pragma unroll
    for (int v = 0; v < kLength; ++v)
      z.elements[v] = function(x.elements[v], y.elements[v]);
    storeWidest(out + place, z);
  };
  if (layout.access[0] == kWidest && layout.access[1] == kWidest) {
    Pack<T, kLength> x[kPacks], y[kPacks];
#pragma unroll
    for (int t = 0; t < kPacks; ++t) {
      const int64_t pack = first + t * kMapThreads;
      if (pack >= layout.packs)
        continue;
      x[t] = loadBy<kWidest, kLength>(a + layout.head + pack * kLength);
      y[t] = loadBy<kWidest, kLength>(b + layout.head + pack * kLength);
    }
#pragma unroll
    for (int t = 0; t < kPacks; ++t) {
      const int64_t pack = first + t * kMapThreads;
      if (pack < layout.packs)
        finishPack(layout.head + pack * kLength, x[t], y[t]);
    }
  } else {
#pragma unroll 1
    for (int t = 0; t < kPacks; ++t) {
      const int64_t pack = first + t * kMapThreads;
      if (pack >= layout.packs)
        continue;
      const int64_t place = layout.head + pack * kLength;
      const auto x = loadBy<kLength>(layout.access[0], a + place);
      const auto y = loadBy<kLength>(layout.access[1], b + place);
      finishPack(place, x, y);
    }
  }
  const int64_t edge = edgeOfThread(layout);
  if (edge >= 0)
    storeElement<Cache::Keep>(out + edge,
                              function(loadElement<Cache::Keep>(a + edge),
                                       loadElement<Cache::Keep>(b + edge)));
}

template <class In, class Out, class Function>
cudaError_t launchMap(cudaStream_t stream, const void *in, void *out, int64_t n,
                      const Function &function) {
  if (n == 0)
    return cudaSuccess;
  constexpr int kLength = packLength(std::min(sizeof(In), sizeof(Out)));
  const In *from = static_cast<const In *>(in);
  Out *to = static_cast<Out *>(out);
  const MapLayout layout = Function::kHasResult
                               ? makeMapLayout<kLength>(to, from, from, n)
                               : makeMapLayout<kLength>(from, from, from, n);
  return launch(stream, layout.blocks(kMapPacks<kLength * sizeof(In)>),
                kMapThreads, 0, mapArray<kLength, In, Out, Function>, from, to,
                layout, function);
}

template <class T, class Function>
cudaError_t launchMap2(cudaStream_t stream, const void *a, const void *b,
                       void *out, int64_t n, const Function &function) {
  if (n == 0)
    return cudaSuccess;
  constexpr int kLength = packLength(sizeof(T));
  const T *x = static_cast<const T *>(a), *y = static_cast<const T *>(b);
  T *to = static_cast<T *>(out);
  const MapLayout layout = makeMapLayout<kLength>(to, x, y, n);
  return launch(stream, layout.blocks(kMapPacks<kLength * sizeof(T)>),
                kMapThreads, 0, mapArrays<kLength, T, Function>, x, y, to,
                layout, function);
}

} // namespace ddphook::cuda
