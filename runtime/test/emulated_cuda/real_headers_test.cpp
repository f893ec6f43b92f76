// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Built where a CUDA toolkit and NCCL are installed; it needs no GPU.

#include "interface_list.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>

namespace {

constexpr unsigned seed = 90210;

void compare(const Interface &emulated, Interface real) {
  ASSERT_EQ(emulated.size(), real.size());
  std::printf("%zu names compared\n", real.size());
  for (const auto &[name, value] : emulated)
    EXPECT_EQ(value, real[name]) << name;
}

TEST(RealHeaders, OfTheRuntimeDeclareTheSame) {
  compare(emulatedRuntimeInterface(), realRuntimeInterface());
}

TEST(RealHeaders, OfTheLibrariesDeclareTheSame) {
  compare(emulatedInterface(), realInterface());
}

uint32_t bitsOf(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}

TEST(RealHeaders, ConvertToTheSameBits) {
  const Conversions emulated = emulatedConversions(), real = realConversions();
  for (unsigned i = 0; i < 65536; ++i) {
    auto bits = static_cast<unsigned short>(i);
    ASSERT_EQ(bitsOf(emulated.halfToFloat(bits)),
              bitsOf(real.halfToFloat(bits)))
        << i;
    ASSERT_EQ(bitsOf(emulated.bfloat16ToFloat(bits)),
              bitsOf(real.bfloat16ToFloat(bits)))
        << i;
  }
  std::printf("seed %u\n", seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 5000000; ++i) {
    uint64_t bits = random();
    auto narrow = static_cast<uint32_t>(bits);
    float x;
    std::memcpy(&x, &narrow, sizeof(x));
    ASSERT_EQ(emulated.floatToHalf(x), real.floatToHalf(x)) << narrow;
    ASSERT_EQ(emulated.floatToBfloat16(x), real.floatToBfloat16(x)) << narrow;
    // Exponents within or near the types' ranges.
    bits = (bits & 0x800fffffffffffff) | (1023 - 150 + random() % 300) << 52;
    double y;
    std::memcpy(&y, &bits, sizeof(y));
    ASSERT_EQ(emulated.doubleToHalf(y), real.doubleToHalf(y)) << bits;
    ASSERT_EQ(emulated.doubleToBfloat16(y), real.doubleToBfloat16(y)) << bits;
  }
}

} // namespace
