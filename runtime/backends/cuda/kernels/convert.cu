// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each pair of types has three kernels: one that converts; one that multiplies
// the converted values by the inverse of a divisor; and one that divides them.

#include "kernels.h"

#include "map.h"

using namespace ddphook;
using namespace ddphook::cuda;

namespace {

template <class In, class Out>
struct Convert {
  static constexpr bool kHasResult = true;

  __device__ __forceinline__ ElemOf<Out> operator()(ElemOf<In> x) const {
    return convertElement<In, Out>(x);
  }
  __device__ __forceinline__ void finish() const {}
};

/// Divides by `number`, or multiplies by it, the divisor's inverse.
template <class In, class Out, bool kIsInverse>
struct ConvertAndDivide {
  static constexpr bool kHasResult = true;

  __device__ __forceinline__ ElemOf<Out> operator()(ElemOf<In> x) const {
    const ElemOf<Out> converted = convertElement<In, Out>(x);
    return kIsInverse ? scaleElement<Out>(converted, number)
                      : divideElement<Out>(converted, number);
  }
  __device__ __forceinline__ void finish() const {}

  ComputeOf<Out> number;
};

/// Calls fn(In(), Out()) with the classes of two types.
template <class Fn>
cudaError_t withElements(Dtype in, Dtype out, const Fn &fn) {
  return withElement(in, [&](auto from) {
    return withElement(out, [&](auto to) { return fn(from, to); });
  });
}

} // namespace

cudaError_t ddphook::cuda::castArray(cudaStream_t stream, const void *in,
                                     Dtype inType, void *out, Dtype outType,
                                     int64_t n) {
  if (inType == outType && in == out)
    return cudaSuccess;
  return withElements(inType, outType, [&](auto from, auto to) {
    using In = decltype(from);
    using Out = decltype(to);
    return launchMap<ElemOf<In>, ElemOf<Out>>(stream, in, out, n,
                                              Convert<In, Out>());
  });
}

cudaError_t ddphook::cuda::compressArray(cudaStream_t stream, const void *in,
                                         Dtype inType, void *wire,
                                         Dtype wireType, int64_t n,
                                         Divisor divisor) {
  if (divisor.number == 1)
    return castArray(stream, in, inType, wire, wireType, n);
  return withElements(inType, wireType, [&](auto from, auto to) {
    using In = decltype(from);
    using Out = decltype(to);
    using T = ComputeOf<Out>;
    auto run = [&](auto function) {
      return launchMap<ElemOf<In>, ElemOf<Out>>(stream, in, wire, n, function);
    };
    if (const T factor = divisor.factor<T>())
      return run(ConvertAndDivide<In, Out, true>{factor});
    return run(
        ConvertAndDivide<In, Out, false>{static_cast<T>(divisor.number)});
  });
}

cudaError_t ddphook::cuda::scaleArray(cudaStream_t stream, const void *in,
                                      void *out, Dtype type, int64_t n,
                                      double factor) {
  return withElement(type, [&](auto element) {
    using Element = decltype(element);
    using T = ElemOf<Element>;
    return launchMap<T, T>(stream, in, out, n,
                           ConvertAndDivide<Element, Element, true>{
                               static_cast<ComputeOf<Element>>(factor)});
  });
}
