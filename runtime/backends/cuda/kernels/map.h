//===- map.h - the element-wise kernels -------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels that apply a function to the elements of one or two arrays. Which
// functions there are is in convert.cu and arithmetic.cu.
//
// They are bound by memory. A pack has 16 bytes in the array of the widest
// elements and fewer in the others, so that each instruction of a warp reads or
// writes one contiguous range; a thread has several packs, a block's threads
// apart, in flight before it uses the first. The elements before the first
// whole pack of the output, and after the last, are the first block's.
//
// Loads and stores keep the default cache policy: what a bucket's pass writes,
// the next pass or a collective reads.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_CUDA_KERNELS_MAP_H
#define DDPHOOK_RUNTIME_BACKENDS_CUDA_KERNELS_MAP_H

#include "launch.h"

#include <algorithm>

namespace ddphook::cuda {

constexpr int kMapThreads = 256;
constexpr int kMapPacks = 4;

/// How many elements a pack has when the largest element has `size` bytes.
constexpr int packLength(size_t size) { return static_cast<int>(16 / size); }

/// How arrays are divided into packs.
struct MapLayout {
  int64_t n;
  /// Elements before the first pack and after the last.
  int head;
  int tail;
  int64_t packs;
  /// Whether the packs of the first and the second input are aligned; those of
  /// the output are.
  bool isAligned[2];

  int64_t blocks() const {
    constexpr int64_t perBlock = kMapThreads * kMapPacks;
    return std::max<int64_t>(1, (packs + perBlock - 1) / perBlock);
  }
};

/// A layout in which the packs of `lead` are aligned. `n` is not 0.
template <int kLength, class Lead, class A, class B>
MapLayout makeMapLayout(const Lead *lead, const A *a, const B *b, int64_t n) {
  MapLayout layout = {};
  layout.n = n;
  while (layout.head < n && !isAlignedForPacks<kLength>(lead + layout.head))
    ++layout.head;
  layout.packs = (n - layout.head) / kLength;
  layout.tail = static_cast<int>((n - layout.head) % kLength);
  layout.isAligned[0] = isAlignedForPacks<kLength>(a + layout.head);
  layout.isAligned[1] = isAlignedForPacks<kLength>(b + layout.head);
  return layout;
}

/// The calling thread's pack number `turn`; may be beyond the last.
__device__ __forceinline__ int64_t packOfThread(int turn) {
  return int64_t(blockIdx.x) * (kMapThreads * kMapPacks) + turn * kMapThreads +
         threadIdx.x;
}

/// The element of the head or the tail that the calling thread has to do with;
/// -1 for none.
__device__ __forceinline__ int64_t edgeOfThread(const MapLayout &layout) {
  const int t = static_cast<int>(threadIdx.x);
  if (blockIdx.x != 0 || t >= layout.head + layout.tail)
    return -1;
  return t < layout.head ? t : layout.n - layout.head - layout.tail + t;
}

/// out[i] = function(in[i]); then function.finish() in every thread. `out` is
/// null for functions without a result.
template <int kLength, class In, class Out, class Function>
__global__ void __launch_bounds__(kMapThreads)
    mapArray(const In *in, Out *out, MapLayout layout, Function function) {
  const In *packed = in + layout.head;
  Pack<In, kLength> x[kMapPacks];
#pragma unroll
  for (int t = 0; t < kMapPacks; ++t) {
    const int64_t pack = packOfThread(t);
    if (pack < layout.packs)
      x[t] = loadPack<kLength>(packed + pack * kLength, layout.isAligned[0]);
  }
#pragma unroll
  for (int t = 0; t < kMapPacks; ++t) {
    const int64_t pack = packOfThread(t);
    if (pack >= layout.packs)
      continue;
    Pack<Out, kLength> y;
#pragma unroll
    for (int v = 0; v < kLength; ++v)
      y.elements[v] = function(x[t].elements[v]);
    if (Function::kHasResult)
      storePack(out + layout.head + pack * kLength, y, true);
  }
  const int64_t edge = edgeOfThread(layout);
  if (edge >= 0) {
    const Out y = function(in[edge]);
    if (Function::kHasResult)
      out[edge] = y;
  }
  function.finish();
}

/// out[i] = function(a[i], b[i]).
template <int kLength, class T, class Function>
__global__ void __launch_bounds__(kMapThreads)
    mapArrays(const T *a, const T *b, T *out, MapLayout layout,
              Function function) {
  Pack<T, kLength> x[kMapPacks], y[kMapPacks];
#pragma unroll
  for (int t = 0; t < kMapPacks; ++t) {
    const int64_t pack = packOfThread(t);
    const int64_t i = layout.head + pack * kLength;
    if (pack < layout.packs) {
      x[t] = loadPack<kLength>(a + i, layout.isAligned[0]);
      y[t] = loadPack<kLength>(b + i, layout.isAligned[1]);
    }
  }
#pragma unroll
  for (int t = 0; t < kMapPacks; ++t) {
    const int64_t pack = packOfThread(t);
    if (pack >= layout.packs)
      continue;
    Pack<T, kLength> z;
#pragma unroll
    for (int v = 0; v < kLength; ++v)
      z.elements[v] = function(x[t].elements[v], y[t].elements[v]);
    storePack(out + layout.head + pack * kLength, z, true);
  }
  const int64_t edge = edgeOfThread(layout);
  if (edge >= 0)
    out[edge] = function(a[edge], b[edge]);
}

template <class In, class Out, class Function>
cudaError_t launchMap(cudaStream_t stream, const void *in, void *out, int64_t n,
                      const Function &function) {
  if (n == 0)
    return cudaSuccess;
  constexpr int kLength = packLength(std::max(sizeof(In), sizeof(Out)));
  const In *from = static_cast<const In *>(in);
  Out *to = static_cast<Out *>(out);
  const MapLayout layout = Function::kHasResult
                               ? makeMapLayout<kLength>(to, from, from, n)
                               : makeMapLayout<kLength>(from, from, from, n);
  return launch(stream, layout.blocks(), kMapThreads, 0,
                mapArray<kLength, In, Out, Function>, from, to, layout,
                function);
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
  return launch(stream, layout.blocks(), kMapThreads, 0,
                mapArrays<kLength, T, Function>, x, y, to, layout, function);
}

} // namespace ddphook::cuda

#endif // DDPHOOK_RUNTIME_BACKENDS_CUDA_KERNELS_MAP_H
