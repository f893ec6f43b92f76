// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All 65536 patterns of both 16-bit types against a reading of the formats by
// exact arithmetic, and roundings against a search for the nearest number.

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_runtime.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

namespace {

constexpr unsigned seed = 77003;

/// One 16-bit type, by its format and by the functions under test.
struct Format {
  const char *name;
  int exponentBits;
  int mantissaBits;
  float (*widen)(uint16_t);
  uint16_t (*roundFloat)(float);
  uint16_t (*roundDouble)(double);

  uint16_t infinity() const {
    return static_cast<uint16_t>(((1 << exponentBits) - 1) << mantissaBits);
  }
  bool isNan(uint16_t bits) const { return (bits & 0x7fff) > infinity(); }
  /// The value of a pattern that is no NaN, as its definition says.
  double value(uint16_t bits) const {
    int exponent = (bits & 0x7fff) >> mantissaBits;
    int mantissa = bits & ((1 << mantissaBits) - 1);
    int bias = (1 << (exponentBits - 1)) - 1;
    double magnitude;
    if ((bits & 0x7fff) == infinity())
      magnitude = INFINITY;
    else if (exponent == 0)
      magnitude = std::ldexp(mantissa, 1 - bias - mantissaBits);
    else
      magnitude = std::ldexp(mantissa + (1 << mantissaBits),
                             exponent - bias - mantissaBits);
    return bits & 0x8000 ? -magnitude : magnitude;
  }
  /// The pattern nearest to `x`, which is no NaN: found between its neighbours
  /// in the sorted list of all numbers. A number from the middle of the largest
  /// one and the next power of two on becomes infinite.
  uint16_t nearest(double x) const {
    uint16_t sign = std::signbit(x) ? 0x8000 : 0;
    double magnitude = std::fabs(x);
    uint16_t low = 0, high = infinity();
    while (high - low > 1) {
      uint16_t middle = static_cast<uint16_t>((low + high) / 2);
      (value(middle) <= magnitude ? low : high) = middle;
    }
    double below = value(low);
    double above = high == infinity() ? std::ldexp(1, 1 << (exponentBits - 1))
                                      : value(high);
    if (std::isinf(magnitude))
      return sign | infinity();
    // Both differences are exact: of numbers within a factor of two, or from
    // zero.
    double down = magnitude - below, up = above - magnitude;
    uint16_t result = down < up || (down == up && low % 2 == 0) ? low : high;
    return sign | result;
  }
};

const Format formats[] = {
    {"f16", 5, 10,
     [](uint16_t bits) { return __half2float(__ushort_as_half(bits)); },
     [](float x) -> uint16_t { return __half_as_ushort(__float2half_rn(x)); },
     [](double x) -> uint16_t { return __half_as_ushort(__double2half(x)); }},
    {"bf16", 8, 7,
     [](uint16_t bits) { return __bfloat162float(__ushort_as_bfloat16(bits)); },
     [](float x) -> uint16_t {
       return __bfloat16_as_ushort(__float2bfloat16_rn(x));
     },
     [](double x) -> uint16_t {
       return __bfloat16_as_ushort(__double2bfloat16(x));
     }},
};

class Conversion : public testing::TestWithParam<Format> {};

TEST_P(Conversion, WidensEveryPattern) {
  const Format &format = GetParam();
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    uint16_t pattern = static_cast<uint16_t>(bits);
    float wide = format.widen(pattern);
    if (!format.isNan(pattern)) {
      ASSERT_EQ(static_cast<double>(wide), format.value(pattern)) << bits;
      ASSERT_EQ(std::signbit(wide), bits >= 0x8000) << bits;
    } else if (format.exponentBits == 5) {
      ASSERT_EQ(__float_as_uint(wide), 0x7fffffffu) << bits;
    } else {
      ASSERT_EQ(__float_as_uint(wide), bits << 16) << bits;
    }
  }
}

TEST_P(Conversion, RoundsEveryNumberOfItsOwnToItself) {
  const Format &format = GetParam();
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    uint16_t pattern = static_cast<uint16_t>(bits);
    uint16_t expected = format.isNan(pattern) ? 0x7fff : pattern;
    ASSERT_EQ(format.roundFloat(format.widen(pattern)), expected) << bits;
  }
}

TEST_P(Conversion, RoundsMiddlesToEvenAndTheirNeighboursToTheNearest) {
  const Format &format = GetParam();
  for (uint16_t low = 0; low < format.infinity(); ++low) {
    double below = format.value(low);
    double above = low + 1 == format.infinity()
                       ? std::ldexp(1, 1 << (format.exponentBits - 1))
                       : format.value(static_cast<uint16_t>(low + 1));
    double middle = (below + above) / 2;
    uint16_t high = static_cast<uint16_t>(low + 1);
    for (int sign : {1, -1}) {
      uint16_t bit = sign < 0 ? 0x8000 : 0;
      ASSERT_EQ(format.roundDouble(sign * middle),
                (low % 2 ? high : low) | bit);
      ASSERT_EQ(format.roundDouble(sign * std::nextafter(middle, 0.0)),
                low | bit);
      ASSERT_EQ(format.roundDouble(sign * std::nextafter(middle, INFINITY)),
                high | bit);
    }
  }
}

TEST_P(Conversion, RoundsFloatsOfAllKinds) {
  const Format &format = GetParam();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 2000000; ++i) {
    float x = __uint_as_float(random());
    uint16_t expected = std::isnan(x) ? 0x7fff : format.nearest(x);
    ASSERT_EQ(format.roundFloat(x), expected) << __float_as_uint(x);
  }
}

TEST_P(Conversion, RoundsDoublesOnce) {
  const Format &format = GetParam();
  std::mt19937_64 random(seed);
  for (int i = 0; i < 1000000; ++i) {
    // Few exponents, so that most are within the type's range.
    uint64_t exponent = 1023 - 150 + random() % 300;
    uint64_t bits = (random() & 0x800fffffffffffff) | exponent << 52;
    double x = __longlong_as_double(static_cast<long long>(bits));
    ASSERT_EQ(format.roundDouble(x), format.nearest(x)) << bits;
  }
  for (double x : {0.0, -0.0, 5e-324, -5e-324, double(INFINITY),
                   -double(INFINITY), 1.7e308})
    ASSERT_EQ(format.roundDouble(x), format.nearest(x)) << x;
  EXPECT_EQ(format.roundDouble(NAN), 0x7fff);
  EXPECT_EQ(format.roundDouble(-NAN), 0x7fff);
}

INSTANTIATE_TEST_SUITE_P(Formats, Conversion, testing::ValuesIn(formats),
                         [](const auto &info) {
                           return std::string(info.param.name);
                         });

TEST(Conversion, PairsAreTwoOfTheirElements) {
  __half2 half = __floats2half2_rn(1.5f, -2.25f);
  EXPECT_EQ(__half2float(__low2half(half)), 1.5f);
  EXPECT_EQ(__half2float(__high2half(half)), -2.25f);
  EXPECT_EQ(__half22float2(half).y, -2.25f);
  __nv_bfloat162 brain = __floats2bfloat162_rn(1.5f, -2.25f);
  EXPECT_EQ(__bfloat162float(__low2bfloat16(brain)), 1.5f);
  EXPECT_EQ(__bfloat1622float2(brain).y, -2.25f);
  static_assert(sizeof(__half2) == 4 && alignof(__half2) == 4);
  static_assert(sizeof(__nv_bfloat162) == 4 && alignof(__nv_bfloat162) == 4);
}

TEST(Arithmetic, ProductsAndSumsAreNotFused) {
  // Their product is 1 + 2^-11 + 2^-24, of which a float keeps the first two.
  float a = 1 + 0x1p-12f;
  float rounded = 1 + 0x1p-11f;
  EXPECT_EQ(__fadd_rn(__fmul_rn(a, a), -rounded), 0.0f);
  EXPECT_EQ(__fmaf_rn(a, a, -rounded), 0x1p-24f);
  double b = 1 + 0x1p-27;
  EXPECT_EQ(__dadd_rn(__dmul_rn(b, b), -(1 + 0x1p-26)), 0.0);
  EXPECT_EQ(__fma_rn(b, b, -(1 + 0x1p-26)), 0x1p-54);
  EXPECT_EQ(__fdiv_rn(1.0f, 3.0f), 0x1.555556p-2f);
  EXPECT_EQ(__fsqrt_rn(2.0f), 0x1.6a09e6p+0f);
}

} // namespace
