// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Element-wise kernels with a single type.

#include "kernels.h"

#include "map.h"
#include "reductions.h"

using namespace ddphook;
using namespace ddphook::cuda;

namespace {

template <class Element>
struct Add {
  __device__ __forceinline__ ElemOf<Element>
  operator()(ElemOf<Element> a, ElemOf<Element> b) const {
    return addElements<Element>(a, b);
  }
};

template <class Element>
struct Subtract {
  __device__ __forceinline__ ElemOf<Element>
  operator()(ElemOf<Element> a, ElemOf<Element> b) const {
    return subtractElements<Element>(a, b);
  }
};

template <class Element>
struct FindNonFinite {
  static constexpr bool kHasResult = false;

  __device__ __forceinline__ ElemOf<Element> operator()(ElemOf<Element> x) {
    found |= !Element::isFinite(x);
    return x;
  }
  __device__ __forceinline__ void finish() const {
    const bool any = __ballot_sync(~0u, found) != 0;
    if (any && threadIdx.x % 32 == 0)
      atomicOr(flag, 1);
  }

  int32_t *flag;
  bool found;
};

template <class Element>
struct AddSquares {
  static constexpr bool kHasResult = false;

  __device__ __forceinline__ ElemOf<Element> operator()(ElemOf<Element> x) {
    const double value = Element::widen(x);
    squares += value * value;
    return x;
  }
  __device__ __forceinline__ void finish() const {
    double ofWarp = squares;
    sumOverLanes<1>(&ofWarp);
    if (threadIdx.x % 32 == 0)
      atomicAdd(sum, ofWarp);
  }

  double *sum;
  double squares;
};

} // namespace

cudaError_t ddphook::cuda::addArrays(cudaStream_t stream, void *out,
                                     const void *a, const void *b, Dtype type,
                                     int64_t n) {
  return withElement(type, [&](auto element) {
    using Element = decltype(element);
    return launchMap2<ElemOf<Element>>(stream, a, b, out, n, Add<Element>());
  });
}

cudaError_t ddphook::cuda::subtractArrays(cudaStream_t stream, void *out,
                                          const void *a, const void *b,
                                          Dtype type, int64_t n) {
  return withElement(type, [&](auto element) {
    using Element = decltype(element);
    return launchMap2<ElemOf<Element>>(stream, a, b, out, n,
                                       Subtract<Element>());
  });
}

cudaError_t ddphook::cuda::findNonFinite(cudaStream_t stream, const void *in,
                                         Dtype type, int64_t n, int32_t *flag) {
  return withElement(type, [&](auto element) {
    using Element = decltype(element);
    using T = ElemOf<Element>;
    const FindNonFinite<Element> function = {flag, false};
    return launchMap<T, T>(stream, in, nullptr, n, function);
  });
}

cudaError_t ddphook::cuda::addSquares(cudaStream_t stream, const void *in,
                                      Dtype type, int64_t n, double *sum) {
  return withElement(type, [&](auto element) {
    using Element = decltype(element);
    using T = ElemOf<Element>;
    const AddSquares<Element> function = {sum, 0};
    return launchMap<T, T>(stream, in, nullptr, n, function);
  });
}
