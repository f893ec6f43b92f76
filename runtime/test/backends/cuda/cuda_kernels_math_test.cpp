// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// elements.h on this processor, without any device: bit by bit against the host
// backend's kernels, which have tests of their own. Every 16-bit value; floats
// at and next to every tie; random bits. Bits equal means equal, or both NaN.

#include "../../../backends/cuda/kernels/elements.h"
#include "../../../backends/host/kernels/kernels.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

using namespace ddphook;
using namespace ddphook::cuda;

namespace {

constexpr uint32_t kSeed = 20251122;

template <class Element>
bool isSame(ElemOf<Element> a, ElemOf<Element> b) {
  auto isNaN = [](ElemOf<Element> x) { return std::isnan(Element::widen(x)); };
  return std::memcmp(&a, &b, sizeof(a)) == 0 || (isNaN(a) && isNaN(b));
}

template <class Element>
ElemOf<Element> ofBits(uint64_t bits) {
  ElemOf<Element> x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

/// Values that are hard to round, of any type.
template <class Element>
std::vector<ElemOf<Element>> hardValues() {
  std::mt19937_64 random(kSeed);
  std::vector<ElemOf<Element>> values;
  auto putFloat = [&](float x) {
    if constexpr (std::is_same_v<Element, F64>) {
      for (double y : {static_cast<double>(x), std::nextafter(x, HUGE_VAL),
                       std::nextafter(x, -HUGE_VAL)})
        values.push_back(y);
    } else {
      values.push_back(Element::narrow(x));
    }
  };
  for (uint32_t h = 0; h < 0x10000; ++h) {
    if constexpr (sizeof(ElemOf<Element>) == 2) {
      values.push_back(static_cast<uint16_t>(h));
      continue;
    }
    for (uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      putFloat(floatOf(h << 16 | low));
    const float tie = (F16::widen(static_cast<uint16_t>(h)) +
                       F16::widen(static_cast<uint16_t>(h + 1))) /
                      2;
    for (int delta : {-1, 0, 1})
      putFloat(floatOf(bitsOf(tie) + static_cast<uint32_t>(delta)));
  }
  for (float x :
       {65504.f, 65519.996f, 65520.f, 65535.f, 65536.f, 3e38f, 0x1p-24f,
        0x1p-25f, 0x1.000002p-25f, 0x1p-26f, 0x1p-133f, 0x1p-134f, 0x1p-149f}) {
    putFloat(x);
    putFloat(-x);
  }
  for (int i = 0; i < 100000; ++i)
    values.push_back(ofBits<Element>(random()));
  return values;
}

/// Calls fn(i) until an element differs.
template <class Element, class Fn>
void expectSame(const std::vector<ElemOf<Element>> &want, const Fn &fn) {
  for (size_t i = 0; i < want.size(); ++i) {
    const ElemOf<Element> got = fn(i);
    ASSERT_TRUE(isSame<Element>(got, want[i]))
        << "element " << i << ": expected "
        << static_cast<double>(Element::widen(want[i])) << ", but got "
        << static_cast<double>(Element::widen(got));
  }
}

template <class Element>
class CudaElements : public testing::Test {
protected:
  CudaElements() { RecordProperty("seed", static_cast<int>(kSeed)); }

  template <class Out>
  void convertsTo() {
    SCOPED_TRACE(dtypeName(Out::type));
    const auto in = hardValues<Element>();
    std::vector<ElemOf<Out>> want(in.size());
    host::castArray(in.data(), Element::type, want.data(), Out::type,
                    static_cast<int64_t>(in.size()));
    expectSame<Out>(
        want, [&](size_t i) { return convertElement<Element, Out>(in[i]); });
  }

  template <class HostKernel, class Operation>
  void computes(const HostKernel &kernel, const Operation &operation) {
    const auto in = hardValues<Element>();
    auto other = in;
    std::shuffle(other.begin(), other.end(), std::mt19937_64(kSeed));
    std::vector<ElemOf<Element>> want(in.size());
    kernel(want.data(), in.data(), other.data(),
           static_cast<int64_t>(in.size()));
    expectSame<Element>(want,
                        [&](size_t i) { return operation(in[i], other[i]); });
  }
};

using Elements = testing::Types<F16, BF16, F32, F64>;
TYPED_TEST_SUITE(CudaElements, Elements);

TYPED_TEST(CudaElements, convert) {
  this->template convertsTo<F16>();
  this->template convertsTo<BF16>();
  this->template convertsTo<F32>();
  this->template convertsTo<F64>();
}

TYPED_TEST(CudaElements, divide) {
  using Elem = ElemOf<TypeParam>;
  for (int64_t divisor : {1, 2, 3, 5, 6, 7, 9, 10, 12, 14, 24, 48, 100, 1000})
    this->computes(
        [&](Elem *out, const Elem *in, const Elem *, int64_t n) {
          host::divideArray(in, out, TypeParam::type, n, divisor);
        },
        [&](Elem x, Elem) {
          return divideElement<TypeParam>(
              x, static_cast<ComputeOf<TypeParam>>(divisor));
        });
}

TYPED_TEST(CudaElements, scale) {
  using Elem = ElemOf<TypeParam>;
  for (double factor : {0.1, 1.0 / 3, -2.0, 0.0, 1e30})
    this->computes(
        [&](Elem *out, const Elem *in, const Elem *, int64_t n) {
          host::scaleArray(in, out, TypeParam::type, n, factor);
        },
        [&](Elem x, Elem) {
          return scaleElement<TypeParam>(
              x, static_cast<ComputeOf<TypeParam>>(factor));
        });
}

TYPED_TEST(CudaElements, addAndSubtract) {
  using Elem = ElemOf<TypeParam>;
  this->computes(
      [&](Elem *out, const Elem *a, const Elem *b, int64_t n) {
        host::addArrays(out, a, b, TypeParam::type, n);
      },
      [](Elem a, Elem b) { return addElements<TypeParam>(a, b); });
  this->computes(
      [&](Elem *out, const Elem *a, const Elem *b, int64_t n) {
        host::subtractArrays(out, a, b, TypeParam::type, n);
      },
      [](Elem a, Elem b) { return subtractElements<TypeParam>(a, b); });
}

TYPED_TEST(CudaElements, isFinite) {
  using Elem = ElemOf<TypeParam>;
  for (Elem x : hardValues<TypeParam>())
    ASSERT_EQ(TypeParam::isFinite(x),
              std::isfinite(static_cast<double>(TypeParam::widen(x))));
}

/// What was rounded once stays, and infinities, NaNs and signs of zeros too.
TYPED_TEST(CudaElements, roundToWhatIsStored) {
  using Compute = ComputeOf<TypeParam>;
  for (float x : hardValues<F32>()) {
    const Compute rounded = roundTo<TypeParam>(static_cast<Compute>(x));
    const Compute again = roundTo<TypeParam>(rounded);
    ASSERT_TRUE(rounded == again || (x != x && again != again));
    if (x == x)
      ASSERT_EQ(std::signbit(rounded), std::signbit(x));
  }
}

/// H·(pivot, x) = (beta, 0): H is orthogonal, and beta has the other sign.
template <class T>
void checkReflector(double tolerance) {
  std::mt19937_64 random(kSeed);
  std::normal_distribution<double> normal;
  for (int i = 0; i < 10000; ++i) {
    const int scale = static_cast<int>(random() % 40) - 20;
    const T pivot = static_cast<T>(std::ldexp(normal(random), scale));
    const T x = static_cast<T>(normal(random));
    const Reflector<T> h = makeReflector(pivot, x * x);
    const double v = static_cast<double>(h.factor) * x;
    const double product = h.tau * (pivot + v * x);
    const double beta = pivot - product;
    const double norm = std::hypot(pivot, x);
    ASSERT_NE(std::signbit(beta), std::signbit(pivot));
    ASSERT_NEAR(std::abs(beta) / norm, 1, tolerance);
    ASSERT_NEAR((x - product * v) / norm, 0, tolerance);
    ASSERT_NEAR(h.tau * (1 + v * v), 2, 2 * tolerance);
  }
}

TEST(CudaReflector, mapsToAMultipleOfTheFirstUnitVector) {
  checkReflector<float>(1e-6);
  checkReflector<double>(1e-14);
  // A pivot of zero counts as positive, whatever its sign.
  EXPECT_EQ(makeReflector(0.f, 4.f).tau, 1);
  EXPECT_EQ(makeReflector(0.f, 4.f).factor, 0.5f);
  EXPECT_EQ(makeReflector(-0.f, 4.f).factor, 0.5f);
  // Squares of floats do not overflow.
  EXPECT_EQ(makeReflector(-0x1p100f, 0x1p100f).tau, 2);
}

} // namespace
