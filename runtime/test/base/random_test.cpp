// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Numbers that numpy 2.4 and PyTorch 2.15 printed, and bad arguments. The
// comparison with PyTorch itself is test/parity/test_random.py.

#include "base/random.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

using namespace ddphook;

TEST(Random, GeneratorState) {
  std::vector<int32_t> generator(generatorElements, -1);
  seedGenerator(42, generator.data());
  auto word = [&](size_t i) { return static_cast<uint32_t>(generator[i]); };
  EXPECT_EQ(word(0), 0x2au);
  EXPECT_EQ(word(1), 0xb93c8a93u);
  EXPECT_EQ(word(2), 0x71014437u);
  EXPECT_EQ(word(623), 0x197b52au);
  EXPECT_EQ(word(624), 624u);
  ASSERT_TRUE(
      drawNormal(generator.data(), nullptr, 0, nullptr, Dtype::F32).isOk());
  EXPECT_EQ(word(0), 0x2b26e943u);
  EXPECT_EQ(word(623), 0xf3ac425fu);
  EXPECT_EQ(word(624), 1u);
}

/// The bits of some of the numbers of `RandomState(42)`, `randn` of 3, 20 and 2
/// numbers: the first, the last of each draw, one whose place was written
/// twice, and one that began as half of a pair in another draw.
template <typename Bits>
static void expectBits(Dtype dtype, std::initializer_list<Bits> expected) {
  std::vector<int32_t> generator(generatorElements);
  seedGenerator(42, generator.data());
  const int64_t draws[] = {3, 20, 2};
  std::vector<Bits> out(27, Bits(0xa5));
  ASSERT_TRUE(drawNormal(generator.data(), draws, 3, out.data(), dtype).isOk());
  const size_t places[] = {0, 1, 2, 3, 4, 7, 8, 22, 23, 24};
  size_t i = 0;
  for (Bits bits : expected) {
    EXPECT_EQ(out[places[i]], bits) << "number " << places[i];
    ++i;
  }
  EXPECT_EQ(out[25], Bits(0xa5));
  EXPECT_EQ(out[26], Bits(0xa5));
}

TEST(Random, Numbers) {
  expectBits<uint16_t>(Dtype::F16, {0xa029, 0x3960, 0xbafc, 0x3449, 0xbeb4,
                                    0xc1ac, 0xb5e8, 0x3d91, 0x38d2, 0xb673});
  expectBits<uint16_t>(Dtype::BF16, {0xbc05, 0x3f2c, 0xbf60, 0x3e89, 0xbfd7,
                                     0xc035, 0xbebd, 0x3fb2, 0x3f1a, 0xbece});
  expectBits<uint32_t>(
      Dtype::F32, {0xbc052c05, 0x3f2bfad5, 0xbf5f8259, 0x3e89110d, 0xbfd688b2,
                   0x3d2184c4, 0xbf977a0e, 0x402f5a83, 0x3f1a4d52, 0xbfd60415});
  expectBits<uint64_t>(Dtype::F64, {0xbf80a5809eabaf6d, 0x3fe57f5a9efaa478,
                                    0xbfebf04b269fc4db, 0x3ffbe6d58e6c9fda,
                                    0x3fd60eaee3b3657f, 0x3ff3baf39e504a1b,
                                    0xbf95e88ccdfcca22, 0xbfb7739b25102cac,
                                    0x3fe349aa3f423a32, 0x3feb09082682b480});
}

TEST(Random, BadArguments) {
  std::vector<int32_t> generator(generatorElements);
  seedGenerator(1, generator.data());
  const std::vector<int32_t> before = generator;
  int64_t draws[] = {3, -1};
  float out[4] = {7, 7, 7, 7};
  Status status = drawNormal(generator.data(), draws, 2, out, Dtype::F32);
  EXPECT_EQ(status.code(), DDPHOOK_INVALID_ARGUMENT);
  EXPECT_EQ(status.message(),
            "expected to draw at least 0 numbers, but got -1");
  EXPECT_EQ(generator, before);
  for (int32_t position : {-1, 625, INT32_MIN, INT32_MAX}) {
    generator[624] = position;
    status = drawNormal(generator.data(), draws, 1, out, Dtype::F32);
    EXPECT_EQ(status.code(), DDPHOOK_INVALID_ARGUMENT);
    EXPECT_EQ(status.message(),
              "expected a random generator with a position from 0 to 624, but "
              "got " +
                  std::to_string(position));
  }
  EXPECT_EQ(out[0], 7.0f);
}
