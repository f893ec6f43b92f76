// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The loops, compiled once per instruction set, and their dispatch at run time.

#include "kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels.cpp"
#include "hwy/foreach_target.h"

#include "hwy/cache_control.h"
#include "hwy/highway.h"

#include "elements-inl.h"

#include <algorithm>
#include <cstring>
#include <vector>

HWY_BEFORE_NAMESPACE();
namespace ddphook::host::HWY_NAMESPACE {

/// True if compressKernel() and sumKernel() have loops for these types, which
/// hooks use. All other pairs combine two loops, block by block.
constexpr bool hasFusedLoop(Dtype memory, Dtype wire) {
  return memory == wire || (memory == Dtype::F32 && isHalf(wire));
}

/// The vectors to compute in: doubles if `kDouble`, otherwise floats, with as
/// many lanes as a vector of doubles if the loop also accesses f64 in memory.
template <bool kDouble, class... Elements>
struct TagFor {
  static constexpr bool touchesDouble = (std::is_same_v<Elements, F64> || ...);
  using Doubles = hn::ScalableTag<double>;
  using type =
      std::conditional_t<kDouble, Doubles,
                         std::conditional_t<touchesDouble, Like<float, Doubles>,
                                            hn::ScalableTag<float>>>;
};

struct WholeLoad {
  template <class Element, class D>
  HWY_INLINE hn::Vec<D> operator()(Element, D d,
                                   const typename Element::Elem *p) const {
    return Element::load(d, p);
  }
};

/// Loads the first `count` elements of a vector; the rest is zero.
struct PartialLoad {
  size_t count;

  template <class Element, class D>
  HWY_INLINE hn::Vec<D> operator()(Element element, D d,
                                   const typename Element::Elem *p) const {
    return loadSome(element, d, p, count);
  }
};

template <class Out, class D, class Fn>
HWY_NOINLINE void mapPartial(D d, typename Out::Elem *out, size_t begin,
                             size_t count, const Fn &fn) {
  if (count == 0)
    return;
  HWY_ALIGN typename Out::Elem buffer[kMostLanes<D>];
  Out::template store<false>(d, fn(PartialLoad{count}, begin), buffer);
  std::memcpy(out + begin, buffer, count * sizeof(*out));
}

template <class Out, bool kStream, class D, class Fn>
HWY_NOINLINE void mapFrom(D d, typename Out::Elem *out, size_t begin, size_t n,
                          const Fn &fn) {
  const size_t lanes = hn::Lanes(d);
  size_t i = begin;
  for (; i + 2 * lanes <= n; i += 2 * lanes)
    storePair<Out, kStream>(d, fn(WholeLoad{}, i), fn(WholeLoad{}, i + lanes),
                            out + i);
  for (; i + lanes <= n; i += lanes)
    Out::template store<kStream>(d, fn(WholeLoad{}, i), out + i);
  mapPartial<Out>(d, out, i, n - i, fn);
}

/// Computes out[i] = fn(load, i) for i < n. `fn` computes one vector whose
/// first element is number i, and reads its inputs with load(Element(), tag,
/// address). `kMayStream` says whether to compile a loop with streaming stores.
template <class Out, bool kMayStream, class D, class Fn>
HWY_INLINE void map(D d, void *outBytes, size_t n, Stores stores,
                    const Fn &fn) {
  auto *out = static_cast<typename Out::Elem *>(outBytes);
  if constexpr (kMayStream) {
    // Streaming stores need aligned addresses; storePair() is the widest.
    const size_t width = 2 * hn::Lanes(d) * sizeof(*out);
    const size_t past = reinterpret_cast<uintptr_t>(out) % width;
    const size_t head = (width - past) % width / sizeof(*out);
    if (stores == Stores::Streaming && past % sizeof(*out) == 0 && head < n) {
      mapFrom<Out, false>(d, out, 0, head, fn);
      mapFrom<Out, true>(d, out, head, n, fn);
      hwy::FlushStream();
      return;
    }
  }
  mapFrom<Out, false>(d, out, 0, n, fn);
}

template <class Element>
HWY_INLINE const typename Element::Elem *input(Element, const void *array) {
  return static_cast<const typename Element::Elem *>(array);
}

/// True if loops with these types also exist with streaming stores; f64 and old
/// processors are not worth the code.
template <class... Elements>
constexpr bool mayStream =
    HWY_MAX_BYTES > 16 && !(std::is_same_v<Elements, F64> || ...);

template <class From, class To>
HWY_INLINE void castElements(From from, To, const void *in, void *out, size_t n,
                             Stores stores) {
  const typename TagFor<false, From, To>::type d;
  const auto *x = input(from, in);
  map<To, mayStream<From, To>>(d, out, n, stores,
                               [&](auto load, size_t i) HWY_ATTR {
                                 prefetchAhead(x + i);
                                 return load(from, d, x + i);
                               });
}

void castKernel(const void *in, CastDtype inType, void *out, CastDtype outType,
                size_t n, Stores stores) {
  withElement(inType, [&](auto from) HWY_ATTR {
    withElement(outType, [&](auto to) HWY_ATTR {
      if constexpr (!std::is_same_v<decltype(from), decltype(to)>)
        castElements(from, to, in, out, n, stores);
    });
  });
}

/// How to divide by the group's size. For a power of two, multiplying by the
/// reciprocal gives the same bits.
enum class Division { Multiply, Divide };

/// Calls fn with the kind of division for the divisor, as a constant.
template <class Fn>
HWY_INLINE void withDivision(int64_t divisor, const Fn &fn) {
  if ((divisor & (divisor - 1)) == 0)
    fn(std::integral_constant<Division, Division::Multiply>());
  else
    fn(std::integral_constant<Division, Division::Divide>());
}

template <Division kDivision, class D>
HWY_INLINE hn::Vec<D> operandsOf(D d, int64_t divisor) {
  using T = hn::TFromD<D>;
  return hn::Set(d, kDivision == Division::Multiply
                        ? T(1) / static_cast<T>(divisor)
                        : static_cast<T>(divisor));
}

template <Division kDivision, class V>
HWY_INLINE V divide(V v, V operands) {
  if constexpr (kDivision == Division::Multiply)
    return hn::Mul(v, operands);
  else
    return hn::Div(v, operands);
}

void compressKernel(const void *in, Dtype inType, void *out, Dtype outType,
                    size_t n, int64_t divisor, Stores stores) {
  withElement(inType, [&](auto from) HWY_ATTR {
    withElement(outType, [&](auto to) HWY_ATTR {
      using From = decltype(from);
      using To = decltype(to);
      if constexpr (hasFusedLoop(From::type, To::type)) {
        withDivision(divisor, [&](auto division) HWY_ATTR {
          constexpr Division kDivision = division.value;
          const typename TagFor<std::is_same_v<To, F64>, From, To>::type d;
          const auto *x = input(from, in);
          const auto operands = operandsOf<kDivision>(d, divisor);
          map<To, mayStream<From, To>>(
              d, out, n, stores, [&](auto load, size_t i) HWY_ATTR {
                prefetchAhead(x + i);
                auto v = load(from, d, x + i);
                // Elements of the same type need no rounding.
                if constexpr (!std::is_same_v<From, To>)
                  v = To::round(d, v);
                return divide<kDivision>(v, operands);
              });
        });
      }
    });
  });
}

void peerKernel(const float *own, int64_t divisor, const float *peer,
                bool ownIsFirst, float *out, size_t n, Stores stores) {
  const hn::ScalableTag<float> d;
  withDivision(divisor, [&](auto division) HWY_ATTR {
    constexpr Division kDivision = division.value;
    const auto operands = operandsOf<kDivision>(d, divisor);
    auto addend = [&](auto load, size_t i) HWY_ATTR {
      return divide<kDivision>(load(F32(), d, own + i), operands);
    };
    // The order determines which of two NaNs is the sum.
    if (ownIsFirst)
      map<F32, mayStream<F32>>(
          d, out, n, stores, [&](auto load, size_t i) HWY_ATTR {
            return hn::Add(load(F32(), d, peer + i), addend(load, i));
          });
    else
      map<F32, mayStream<F32>>(
          d, out, n, stores, [&](auto load, size_t i) HWY_ATTR {
            return hn::Add(addend(load, i), load(F32(), d, peer + i));
          });
  });
}

void scaleKernel(const void *in, void *out, Dtype type, size_t n,
                 double factor) {
  withElement(type, [&](auto element) HWY_ATTR {
    using Element = decltype(element);
    const typename TagFor<std::is_same_v<Element, F64>, Element>::type d;
    const auto *x = input(element, in);
    const auto operand =
        hn::Set(d, static_cast<hn::TFromD<decltype(d)>>(factor));
    map<Element, false>(d, out, n, Stores::Cached,
                        [&](auto load, size_t i) HWY_ATTR {
                          return hn::Mul(load(element, d, x + i), operand);
                        });
  });
}

void subtractKernel(const void *a, const void *b, void *out, Dtype type,
                    size_t n) {
  withElement(type, [&](auto element) HWY_ATTR {
    using Element = decltype(element);
    const typename TagFor<std::is_same_v<Element, F64>, Element>::type d;
    const auto *x = input(element, a);
    const auto *y = input(element, b);
    map<Element, false>(
        d, out, n, Stores::Cached, [&](auto load, size_t i) HWY_ATTR {
          return hn::Sub(load(element, d, x + i), load(element, d, y + i));
        });
  });
}

/// Sums two sources: the common case of two ranks, without a loop over sources.
template <class Wire, class Out>
HWY_INLINE void sumTwo(const void *const *sources, void *out, size_t n,
                       Stores stores) {
  const typename TagFor<std::is_same_v<Wire, F64>, Wire, Out>::type d;
  const auto *a = input(Wire(), sources[0]);
  const auto *b = input(Wire(), sources[1]);
  map<Out, mayStream<Wire, Out>>(
      d, out, n, stores, [&](auto load, size_t i) HWY_ATTR {
        auto sum = hn::Add(load(Wire(), d, b + i), load(Wire(), d, a + i));
        // A store of the wire's own type rounds.
        if constexpr (std::is_same_v<Wire, Out>)
          return sum;
        else
          return Wire::round(d, sum);
      });
}

template <class Wire, class Out>
HWY_INLINE void sumMany(const void *const *sources, int count, void *out,
                        size_t n, Stores stores) {
  const typename TagFor<std::is_same_v<Wire, F64>, Wire, Out>::type d;
  map<Out, mayStream<Wire, Out>>(
      d, out, n, stores, [&](auto load, size_t i) HWY_ATTR {
        auto acc = load(Wire(), d, input(Wire(), sources[0]) + i);
        for (int k = 1; k < count; ++k) {
          auto x = load(Wire(), d, input(Wire(), sources[k]) + i);
          acc = Wire::round(d, hn::Add(x, acc));
        }
        return acc;
      });
}

void sumKernel(const void *const *sources, int count, Dtype wireType, void *out,
               Dtype outType, size_t n, Stores stores) {
  withElement(wireType, [&](auto wire) HWY_ATTR {
    withElement(outType, [&](auto element) HWY_ATTR {
      using Wire = decltype(wire);
      using Out = decltype(element);
      if constexpr (hasFusedLoop(Out::type, Wire::type)) {
        if (count == 2)
          sumTwo<Wire, Out>(sources, out, n, stores);
        else
          sumMany<Wire, Out>(sources, count, out, n, stores);
      }
    });
  });
}

/// The fastest plain copy that we know of, for arrays larger than the caches.
void streamingCopyKernel(void *out, const void *in, size_t bytes) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  auto *to = static_cast<uint8_t *>(out);
  const auto *from = static_cast<const uint8_t *>(in);
  const size_t vectorBytes = lanes * sizeof(float);
  const size_t misaligned = reinterpret_cast<uintptr_t>(to) % vectorBytes;
  size_t i = misaligned == 0 ? 0 : vectorBytes - misaligned;
  if (i > bytes)
    i = bytes;
  std::memcpy(to, from, i);
  // Far enough to reach the next page, which hardware prefetchers do not.
  constexpr size_t ahead = 2048, line = 64;
  for (; i + 4 * vectorBytes <= bytes; i += 4 * vectorBytes) {
    for (size_t k = 0; k < 4 * vectorBytes; k += line)
      hwy::Prefetch(from + i + ahead + k);
    const auto *p = reinterpret_cast<const float *>(from + i);
    auto *q = reinterpret_cast<float *>(to + i);
    const auto v0 = hn::LoadU(d, p);
    const auto v1 = hn::LoadU(d, p + lanes);
    const auto v2 = hn::LoadU(d, p + 2 * lanes);
    const auto v3 = hn::LoadU(d, p + 3 * lanes);
    hn::Stream(v0, d, q);
    hn::Stream(v1, d, q + lanes);
    hn::Stream(v2, d, q + 2 * lanes);
    hn::Stream(v3, d, q + 3 * lanes);
  }
  hwy::FlushStream();
  std::memcpy(to + i, from + i, bytes - i);
}

const char *targetNameKernel() { return hwy::TargetName(HWY_TARGET); }

} // namespace ddphook::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ddphook::host {

/// Elements in a block of the loops that combine two others.
constexpr int64_t kBlock = 1024;

template <class Fn>
static void forBlocks(int64_t n, const Fn &fn) {
  for (int64_t begin = 0; begin < n; begin += kBlock)
    fn(begin, std::min(kBlock, n - begin));
}

HWY_EXPORT(castKernel);
HWY_EXPORT(compressKernel);
HWY_EXPORT(peerKernel);
HWY_EXPORT(scaleKernel);
HWY_EXPORT(subtractKernel);
HWY_EXPORT(sumKernel);
HWY_EXPORT(streamingCopyKernel);
HWY_EXPORT(targetNameKernel);

void castArray(const void *in, CastDtype inType, void *out, CastDtype outType,
               int64_t n, Stores stores) {
  if (inType == outType) {
    if (in != out)
      copyBytes(out, in, n * dtypeSize(inType), stores);
    return;
  }
  HWY_DYNAMIC_DISPATCH(castKernel)
  (in, inType, out, outType, static_cast<size_t>(n), stores);
}

void divideArray(const void *in, void *out, Dtype type, int64_t n,
                 int64_t divisor) {
  compressArray(in, type, out, type, n, divisor);
}

void scaleArray(const void *in, void *out, Dtype type, int64_t n,
                double factor) {
  HWY_DYNAMIC_DISPATCH(scaleKernel)
  (in, out, type, static_cast<size_t>(n), factor);
}

void addArrays(void *out, const void *a, const void *b, Dtype type, int64_t n) {
  const void *sources[] = {a, b};
  sumRanks(sources, 2, out, type, n);
}

void subtractArrays(void *out, const void *a, const void *b, Dtype type,
                    int64_t n) {
  HWY_DYNAMIC_DISPATCH(subtractKernel)
  (a, b, out, type, static_cast<size_t>(n));
}

void compressArray(const void *in, Dtype inType, void *wire, Dtype wireType,
                   int64_t n, int64_t divisor, Stores stores) {
  if (divisor == 1)
    return castArray(in, inType, wire, wireType, n, stores);
  if (!HWY_STATIC_DISPATCH(hasFusedLoop)(inType, wireType)) {
    forBlocks(n, [&](int64_t begin, int64_t count) {
      void *block = elementAt(wire, wireType, begin);
      castArray(elementAt(in, inType, begin), inType, block, wireType, count);
      divideArray(block, block, wireType, count, divisor);
    });
    return;
  }
  HWY_DYNAMIC_DISPATCH(compressKernel)
  (in, inType, wire, wireType, static_cast<size_t>(n), divisor, stores);
}

void sumRanks(const void *const *sources, int count, void *out, Dtype type,
              int64_t n, Stores stores) {
  sumRanksDecompress(sources, count, type, out, type, n, stores);
}

void sumRanksDecompress(const void *const *sources, int count, Dtype wireType,
                        void *out, Dtype outType, int64_t n, Stores stores) {
  if (count == 1)
    return castArray(sources[0], wireType, out, outType, n, stores);
  if (!HWY_STATIC_DISPATCH(hasFusedLoop)(outType, wireType)) {
    std::vector<const void *> shifted(sources, sources + count);
    alignas(64) double sums[kBlock];
    forBlocks(n, [&](int64_t begin, int64_t length) {
      for (int k = 0; k < count; ++k)
        shifted[k] = elementAt(sources[k], wireType, begin);
      sumRanks(shifted.data(), count, sums, wireType, length);
      castArray(sums, wireType, elementAt(out, outType, begin), outType, length,
                stores);
    });
    return;
  }
  HWY_DYNAMIC_DISPATCH(sumKernel)
  (sources, count, wireType, out, outType, static_cast<size_t>(n), stores);
}

void addDividedToPeer(const float *own, int64_t divisor, const float *peer,
                      bool ownIsFirst, float *out, int64_t n, Stores stores) {
  HWY_DYNAMIC_DISPATCH(peerKernel)
  (own, divisor, peer, ownIsFirst, out, static_cast<size_t>(n), stores);
}

void copyBytes(void *out, const void *in, int64_t bytes, Stores stores) {
  if (bytes == 0)
    return; // memcpy() forbids null pointers even for 0 bytes
  if (stores == Stores::Cached)
    std::memcpy(out, in, static_cast<size_t>(bytes));
  else
    HWY_DYNAMIC_DISPATCH(streamingCopyKernel)
  (out, in, static_cast<size_t>(bytes));
}

/// True if all exponent bits, `mask`, of some element are ones: it is infinite
/// or NaN. Compilers vectorise this plain loop; the arrays are small or are
/// read once.
template <typename Bits>
static bool hasNonFinite(const void *in, int64_t n, Bits mask) {
  // Test a chunk at a time: the loop has no exit that would prevent
  // vectorisation, and a large array is not read to its end needlessly.
  constexpr int64_t chunk = 4096;
  auto *bytes = static_cast<const unsigned char *>(in);
  for (int64_t begin = 0; begin < n; begin += chunk) {
    int64_t end = std::min(n, begin + chunk);
    Bits found = 0;
    for (int64_t i = begin; i < end; ++i) {
      Bits bits;
      std::memcpy(&bits, bytes + i * int64_t(sizeof(Bits)), sizeof(Bits));
      found |= static_cast<Bits>((bits & mask) == mask);
    }
    if (found)
      return true;
  }
  return false;
}

bool isFiniteArray(const void *in, Dtype type, int64_t n) {
  switch (type) {
  case Dtype::F16:
    return !hasNonFinite<uint16_t>(in, n, 0x7c00);
  case Dtype::BF16:
    return !hasNonFinite<uint16_t>(in, n, 0x7f80);
  case Dtype::F32:
    return !hasNonFinite<uint32_t>(in, n, 0x7f800000);
  case Dtype::F64:
    return !hasNonFinite<uint64_t>(in, n, 0x7ff0000000000000);
  }
  return false;
}

const char *kernelTargetName() {
  return HWY_DYNAMIC_DISPATCH(targetNameKernel)();
}

} // namespace ddphook::host
#endif // HWY_ONCE
