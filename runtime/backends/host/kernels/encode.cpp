// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The loops over blocks, compiled once per instruction set.

#include "encode.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "encode.cpp"
#include "hwy/foreach_target.h"

#include "hwy/cache_control.h"
#include "hwy/highway.h"

#include "block-codes-inl.h"
#include "sums-inl.h"

#include <algorithm>

#ifndef DDPHOOK_ENCODE_ONCE
#define DDPHOOK_ENCODE_ONCE
namespace ddphook::host {

/// The elements of a block. Casts have none and process this many at a time.
inline size_t blockOf(const Encoding &encoding) {
  return encoding.block == 0 ? 1024 : static_cast<size_t>(encoding.block);
}

} // namespace ddphook::host
#endif // DDPHOOK_ENCODE_ONCE

HWY_BEFORE_NAMESPACE();
namespace ddphook::host::HWY_NAMESPACE {

/// Loads the elements of a block, for encodeAndFind().
template <class From>
struct Elements {
  template <size_t kVectors>
  HWY_INLINE void load(size_t i, hn::Vec<Floats<From>> *vectors) const {
    const Floats<From> d;
    HWY_UNROLL(4)
    for (size_t k = 0; k < kVectors; ++k) {
      prefetchAhead(x + i + k * hn::Lanes(d));
      vectors[k] = From::load(d, x + i + k * hn::Lanes(d));
    }
  }

  const typename From::Elem *const x;
};

/// Encodes blocks, for forBlocksAhead().
template <class CodeT, class From>
struct EncodeWork {
  HWY_INLINE auto most(size_t index, size_t count, size_t) const {
    return findMost<CodeT>(From(), x + index * block, count);
  }
  HWY_INLINE void encode(size_t index, size_t count, size_t,
                         const BlockScale &scale) const {
    encodeInto<CodeT>(out, From(), x + index * block, index * block, count,
                      scale, rounding);
  }
  HWY_INLINE bool canDoBoth(size_t, size_t) const { return !rounding; }
  HWY_INLINE auto both(size_t before, size_t index, size_t,
                       const BlockScale &scale) const {
    const size_t begin = before * block;
    const NearestCodes<CodeT, From> nearest(
        x + begin, codesFrom<CodeT>(out, begin), scale);
    return encodeAndFind(nearest, block, Elements<From>{x + index * block});
  }

  const typename From::Elem *const x;
  const size_t block;
  const EncodedArray out;
  const std::optional<Rounding> &rounding;
};

// The loops for a code and a type of elements are functions of their own: one
// function with all of them takes the compiler minutes.
template <class CodeT, class From>
HWY_NOINLINE void encodeAll(CodeT, From, const void *in, size_t n, size_t block,
                            EncodedArray out,
                            const std::optional<Rounding> &rounding) {
  forBlocksAhead<CodeT>(
      Floats<From>(), n, block, scalesOf(out),
      EncodeWork<CodeT, From>{static_cast<const typename From::Elem *>(in),
                              block, out, rounding});
}

void encodeKernel(const void *in, Dtype inType, size_t n,
                  const Encoding &encoding, EncodedArray out,
                  const std::optional<Rounding> &rounding) {
  withElement(inType, [&](auto from) HWY_ATTR {
    withCode(encoding.code, [&](auto code) HWY_ATTR {
      encodeAll(code, from, in, n, blockOf(encoding), out, rounding);
    });
  });
}

/// Decodes all blocks of an array.
template <class CodeT, bool kStream, class To>
HWY_NOINLINE void decodeBlocks(To to, EncodedArray in, const Encoding &encoding,
                               size_t n, typename To::Elem *out) {
  const Floats<To> d;
  const size_t block = blockOf(encoding), lanes = hn::Lanes(d);
  for (size_t begin = 0, index = 0; begin < n; begin += block, ++index) {
    const size_t size = std::min(block, n - begin);
    auto *y = out + begin;
    forDecoded<CodeT>(d, codesFrom<CodeT>(in, begin), scaleAt<CodeT>(in, index),
                      size, [&](size_t i, size_t count, auto v) HWY_ATTR {
                        prefetchAhead(codesFrom<CodeT>(in, begin + i));
                        if (HWY_LIKELY(count == lanes))
                          To::template store<kStream>(d, v, y + i);
                        else
                          storeSome(to, d, v, y + i, count);
                      });
  }
}

void decodeKernel(EncodedArray in, const Encoding &encoding, size_t n,
                  void *out, Dtype outType, Stores stores) {
  withElement(outType, [&](auto to) HWY_ATTR {
    using To = decltype(to);
    withCode(encoding.code, [&](auto code) HWY_ATTR {
      using CodeT = decltype(code);
      auto *y = static_cast<typename To::Elem *>(out);
      // Blocks are whole vectors, so all are aligned if the first one is. Other
      // types and small vectors are not worth the code.
      if constexpr (std::is_same_v<To, F32> && HWY_MAX_BYTES > 16) {
        if (stores == Stores::Streaming &&
            reinterpret_cast<uintptr_t>(y) % HWY_MAX_BYTES == 0) {
          decodeBlocks<CodeT, true>(to, in, encoding, n, y);
          return hwy::FlushStream();
        }
      }
      decodeBlocks<CodeT, false>(to, in, encoding, n, y);
    });
  });
}

template <class CodeT>
HWY_NOINLINE void sumAll(CodeT, const EncodedArray *sources, int count,
                         size_t n, size_t block, int64_t divisor,
                         EncodedArray out,
                         const std::optional<Rounding> &rounding) {
  const Addends<CodeT> addends(sources, count, block, divisor);
  SumWork<CodeT> work(addends, out, rounding);
  forBlocksAhead<CodeT>(hn::ScalableTag<float>(), n, block, scalesOf(out),
                        work);
}

void sumKernel(const EncodedArray *sources, int count, const Encoding &encoding,
               size_t n, int64_t divisor, EncodedArray out,
               const std::optional<Rounding> &rounding) {
  withCode(encoding.code, [&](auto code) HWY_ATTR {
    sumAll(code, sources, count, n, blockOf(encoding), divisor, out, rounding);
  });
}

/// Computes y[i] = x[i] minus the value of its code, for one block.
template <class CodeT, class Element>
HWY_INLINE void loseBlock(Element element, const typename Element::Elem *x,
                          const typename CodeT::Elem *codes, float scale,
                          size_t n, typename Element::Elem *y) {
  const Floats<Element> d;
  forDecoded<CodeT>(
      d, codes, scale, n, [&](size_t i, size_t count, auto v) HWY_ATTR {
        // Errors of elements that became infinite or NaN are not fed back.
        auto storeLost = [&](auto dy, auto kept) HWY_ATTR {
          const auto lost = hn::Sub(loadSome(element, dy, x + i, count), kept);
          storeSome(element, dy, hn::IfThenElseZero(hn::IsFinite(kept), lost),
                    y + i, count);
        };
        if constexpr (std::is_same_v<Element, F64>) {
          const Like<double, decltype(d)> dd;
          storeLost(dd, hn::PromoteTo(dd, v));
        } else {
          storeLost(d, v);
        }
      });
}

/// Computes y[i] = x[i] minus the value of its nearest code, for one block with
/// a usual scale.
template <class CodeT, class Element>
HWY_INLINE void loseNearest(Element element, const typename Element::Elem *x,
                            const BlockScale &scale, size_t n,
                            typename Element::Elem *y) {
  const Floats<Element> d;
  const Quotients<decltype(d)> quotients(d, scale);
  const auto factor = hn::Set(d, scale.value);
  forVectors(n, hn::Lanes(d), [&](size_t i, size_t count) HWY_ATTR {
    const auto v = loadSome(element, d, x + i, count);
    const auto kept =
        hn::Mul(CodeT::nearestValue(d, quotients.of(v), v), factor);
    if constexpr (std::is_same_v<Element, F64>) {
      const Like<double, decltype(d)> dd;
      const auto lost =
          hn::Sub(loadSome(element, dd, x + i, count), hn::PromoteTo(dd, kept));
      storeSome(element, dd, lost, y + i, count);
    } else {
      storeSome(element, d, hn::Sub(v, kept), y + i, count);
    }
  });
}

/// Computes the error of blocks, for forBlocksAhead().
template <class CodeT, class Element>
struct ErrorWork {
  using Elem = typename Element::Elem;

  HWY_INLINE auto most(size_t index, size_t count, size_t) const {
    return findMost<CodeT>(Element(), x + index * block, count);
  }
  HWY_INLINE void encode(size_t index, size_t count, size_t,
                         const BlockScale &scale) const {
    const size_t begin = index * block;
    if constexpr (isScaled<CodeT>) {
      if (HWY_LIKELY(!rounding && isUsual(scale.value)))
        return loseNearest<CodeT>(Element(), x + begin, scale, count,
                                  y + begin);
    }
    // Codes that are decoded at once need no packing.
    HWY_ALIGN typename CodeT::Elem codes[Encoding::kMostBlock];
    BlockWords room;
    encodeBlock<CodeT>(Element(), x + begin, count, codes, scale,
                       randomWords<CodeT>(rounding, begin, count, room));
    loseBlock<CodeT>(Element(), x + begin, codes, scale.value, count,
                     y + begin);
  }
  HWY_INLINE bool canDoBoth(size_t, size_t) const { return false; }
  HWY_INLINE auto both(size_t, size_t index, size_t, const BlockScale &) const {
    return most(index, 0, 0);
  }

  const Elem *const x;
  Elem *const y;
  const size_t block;
  const std::optional<Rounding> &rounding;
};

template <class CodeT, class Element>
HWY_NOINLINE void errorOfAll(CodeT, Element, const void *in, void *out,
                             size_t n, size_t block,
                             const std::optional<Rounding> &rounding) {
  forBlocksAhead<CodeT>(
      Floats<Element>(), n, block, /*scales=*/nullptr,
      ErrorWork<CodeT, Element>{static_cast<const typename Element::Elem *>(in),
                                static_cast<typename Element::Elem *>(out),
                                block, rounding});
}

void errorKernel(const void *in, void *out, Dtype type, size_t n,
                 const Encoding &encoding,
                 const std::optional<Rounding> &rounding) {
  withElement(type, [&](auto element) HWY_ATTR {
    withCode(encoding.code, [&](auto code) HWY_ATTR {
      errorOfAll(code, element, in, out, n, blockOf(encoding), rounding);
    });
  });
}

} // namespace ddphook::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ddphook::host {

HWY_EXPORT(encodeKernel);
HWY_EXPORT(decodeKernel);
HWY_EXPORT(sumKernel);
HWY_EXPORT(errorKernel);

void encodeArray(const void *in, Dtype inType, int64_t n,
                 const Encoding &encoding, EncodedArray out,
                 const std::optional<Rounding> &rounding) {
  HWY_DYNAMIC_DISPATCH(encodeKernel)
  (in, inType, static_cast<size_t>(n), encoding, out, rounding);
}

void decodeArray(EncodedArray in, const Encoding &encoding, int64_t n,
                 void *out, Dtype outType, Stores stores) {
  HWY_DYNAMIC_DISPATCH(decodeKernel)
  (in, encoding, static_cast<size_t>(n), out, outType, stores);
}

void sumEncoded(const EncodedArray *sources, int count,
                const Encoding &encoding, int64_t n, int64_t divisor,
                EncodedArray out, const std::optional<Rounding> &rounding) {
  HWY_DYNAMIC_DISPATCH(sumKernel)
  (sources, count, encoding, static_cast<size_t>(n), divisor, out, rounding);
}

void encodingError(const void *in, void *out, Dtype type, int64_t n,
                   const Encoding &encoding,
                   const std::optional<Rounding> &rounding) {
  if (encoding.isAffine())
    return affineError(in, out, type, n, encoding);
  HWY_DYNAMIC_DISPATCH(errorKernel)
  (in, out, type, static_cast<size_t>(n), encoding, rounding);
}

} // namespace ddphook::host
#endif // HWY_ONCE
