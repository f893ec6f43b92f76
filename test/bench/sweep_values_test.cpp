// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// That a sweep's check finds what is wrong, and nothing else.

#include "sweep_values.h"

#include "kernels.h"

#include <gtest/gtest.h>

#include <cstring>

using namespace ddphook;
using namespace ddphook::bench;

static constexpr int64_t kCount = 3000;

/// The values of an array of whole numbers.
static std::vector<double> valuesOf(const std::vector<char> &bytes,
                                    Dtype dtype) {
  const int64_t count = static_cast<int64_t>(bytes.size()) / dtypeSize(dtype);
  std::vector<double> values(static_cast<size_t>(count));
  host::castArray(bytes.data(), dtype, values.data(), Dtype::F64, count);
  return values;
}

static std::vector<char> bytesOf(const std::vector<double> &values,
                                 Dtype dtype) {
  std::vector<char> bytes(values.size() *
                          static_cast<size_t>(dtypeSize(dtype)));
  host::castArray(values.data(), Dtype::F64, bytes.data(), dtype,
                  static_cast<int64_t>(values.size()));
  return bytes;
}

/// Sums, and means, of all ranks' inputs are right; an element that differs,
/// one that is another's, and an input that came back are wrong.
TEST(SweepValues, FindWhatIsWrong) {
  for (Dtype dtype : allDtypes)
    for (Dtype wire : allDtypes)
      for (bool isMean : {false, true})
        for (int worldSize : {1, 2, 3, 8, 100}) {
          const std::optional<SweepValues> values =
              SweepValues::create(dtype, wire, isMean, worldSize);
          ASSERT_TRUE(values);
          std::vector<double> sum(kCount);
          for (int rank = 0; rank < worldSize; ++rank) {
            const std::vector<double> input =
                valuesOf(values->input(rank, kCount), dtype);
            ASSERT_EQ(input.size(), size_t(kCount));
            // It survives its trip in the type on the wire.
            EXPECT_EQ(valuesOf(bytesOf(input, wire), wire), input);
            for (size_t i = 0; i < input.size(); ++i)
              sum[i] += isMean ? input[i] / worldSize : input[i];
          }
          std::vector<char> right = bytesOf(sum, dtype);
          EXPECT_EQ(values->countWrong(right.data(), kCount), 0);
          EXPECT_EQ(values->countWrong(right.data(), 0), 0);
          std::vector<char> changed = right;
          changed.back() ^= 1;
          changed.front() ^= 1;
          EXPECT_EQ(values->countWrong(changed.data(), kCount), 2);
          const size_t half = right.size() / 2;
          std::vector<char> moved = right;
          std::memmove(moved.data(), right.data() + half, half);
          EXPECT_GT(values->countWrong(moved.data(), kCount), kCount / 4);
          if (worldSize > 1) {
            EXPECT_GT(
                values->countWrong(values->input(1, kCount).data(), kCount),
                kCount / 4);
          }
        }
}

TEST(SweepValues, NoCheckWhereTheTypeRounds) {
  EXPECT_TRUE(SweepValues::create(Dtype::F32, Dtype::BF16, false, 256));
  EXPECT_FALSE(SweepValues::create(Dtype::F32, Dtype::BF16, false, 257));
  EXPECT_TRUE(SweepValues::create(Dtype::F32, Dtype::F16, true, 2048));
  EXPECT_FALSE(SweepValues::create(Dtype::F16, Dtype::F16, true, 2049));
  EXPECT_TRUE(SweepValues::create(Dtype::F32, Dtype::F32, false, 100000));
}
