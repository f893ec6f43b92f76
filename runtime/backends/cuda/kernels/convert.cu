// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each pair of types has three kernels: one that converts; one that divides the
// converted values; and one that multiplies them, for divisors that are powers
// of two.

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

/// Divides by `number`, or multiplies by it, the divisor's exact inverse.
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

/// Returns the inverse of a divisor if multiplying by it gives the same bits,
/// else 0. The inverse of a power of two is exact, so quotient and product are
/// the same number and round in the same way. A division takes a device some
/// ten instructions.
template <class T>
T exactInverse(int64_t divisor) {
  const bool isPower = divisor > 0 && (divisor & (divisor - 1)) == 0;
  return isPower ? 1 / static_cast<T>(divisor) : T(0);
}

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
                                         int64_t divisor) {
  if (divisor == 1)
    return castArray(stream, in, inType, wire, wireType, n);
  return withElements(inType, wireType, [&](auto from, auto to) {
    using In = decltype(from);
    using Out = decltype(to);
    using T = ComputeOf<Out>;
    auto run = [&](auto function) {
      return launchMap<ElemOf<In>, ElemOf<Out>>(stream, in, wire, n, function);
    };
    if (const T inverse = exactInverse<T>(divisor))
      return run(ConvertAndDivide<In, Out, true>{inverse});
    return run(ConvertAndDivide<In, Out, false>{static_cast<T>(divisor)});
  });
}

cudaError_t ddphook::cuda::divideArray(cudaStream_t stream, const void *in,
                                       void *out, Dtype type, int64_t n,
                                       int64_t divisor) {
  return compressArray(stream, in, type, out, type, n, divisor);
}
