// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loads and stores elements for kernels that encode and decode: a quad at a
// time, with as few instructions as its address permits.

#pragma once

#include "launch.h"

namespace ddphook::cuda {

constexpr int kQuad = 4;

/// Loads `count` elements from element `i` on as floats or doubles; the other
/// elements of the quad are 0.
template <class Element, class T>
__device__ __forceinline__ void loadElements(const void *array, int64_t i,
                                             int count, T (&x)[kQuad]) {
  using Elem = ElemOf<Element>;
  const Elem *from = static_cast<const Elem *>(array) + i;
  constexpr int kPack = sizeof(Elem) > 4 ? 2 : kQuad;
  if (count == kQuad && isAlignedForPacks<kPack>(from)) {
#pragma unroll
    for (int p = 0; p < kQuad; p += kPack) {
      const Pack<Elem, kPack> pack = loadPack<kPack>(from + p, true);
#pragma unroll
      for (int v = 0; v < kPack; ++v)
        x[p + v] = static_cast<T>(Element::widen(pack.elements[v]));
    }
    return;
  }
#pragma unroll
  for (int v = 0; v < kQuad; ++v)
    x[v] = v < count ? static_cast<T>(Element::widen(from[v])) : T(0);
}

/// Stores those values of a quad, floats or doubles, that are its elements
/// first … end - 1.
template <class Element, class T>
__device__ __forceinline__ void storeElements(const T (&x)[kQuad], void *array,
                                              int64_t i, int first, int end) {
  using Elem = ElemOf<Element>;
  Elem *to = static_cast<Elem *>(array) + i;
  constexpr int kPack = sizeof(Elem) > 4 ? 2 : kQuad;
  if (first == 0 && end == kQuad && isAlignedForPacks<kPack>(to)) {
#pragma unroll
    for (int p = 0; p < kQuad; p += kPack) {
      Pack<Elem, kPack> pack;
#pragma unroll
      for (int v = 0; v < kPack; ++v)
        pack.elements[v] =
            Element::narrow(static_cast<ComputeOf<Element>>(x[p + v]));
      storePack(to + p, pack, true);
    }
    return;
  }
#pragma unroll
  for (int v = 0; v < kQuad; ++v)
    if (v >= first && v < end)
      to[v] = Element::narrow(static_cast<ComputeOf<Element>>(x[v]));
}

/// Computes out = x minus `kept`, for `count` elements from element `i` on.
template <class Element>
__device__ __forceinline__ void storeLost(const ComputeOf<Element> (&x)[kQuad],
                                          const float (&kept)[kQuad], void *out,
                                          int64_t i, int count) {
  ComputeOf<Element> lost[kQuad];
#pragma unroll
  for (int v = 0; v < kQuad; ++v)
    // Errors of elements that became infinite or NaN are not fed back.
    lost[v] = F32::isFinite(kept[v])
                  ? x[v] - static_cast<ComputeOf<Element>>(kept[v])
                  : 0;
  storeElements<Element>(lost, out, i, 0, count);
}

/// Calls fn(Element()) with the class of `type`.
template <class Fn>
__device__ __forceinline__ void withElementOf(Dtype type, const Fn &fn) {
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
}

__device__ __forceinline__ void loadQuad(const void *array, Dtype type,
                                         int64_t i, int count,
                                         float (&x)[kQuad]) {
  withElementOf(type, [&](auto element) {
    loadElements<decltype(element)>(array, i, count, x);
  });
}

} // namespace ddphook::cuda
