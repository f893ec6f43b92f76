// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "sweep_values.h"

#include "kernels.h"

#include <algorithm>
#include <cstring>

using namespace ddphook;
using namespace ddphook::bench;

/// Values repeat after a prime number, so no two blocks are alike.
static constexpr int64_t kPeriod = 1009;
static constexpr int64_t kLargest = 3;

static int fractionBits(Dtype dtype) {
  switch (dtype) {
  case Dtype::F16:
    return 10;
  case Dtype::BF16:
    return 7;
  case Dtype::F32:
    return 23;
  case Dtype::F64:
    return 52;
  }
  return 0;
}

/// True if the product with the rounded inverse of `divisor`, which is a
/// quotient on CUDA, is exact.
template <typename T>
static bool dividesBack(int64_t value, int divisor) {
  return static_cast<T>(value * divisor) * (1 / static_cast<T>(divisor)) ==
         static_cast<T>(value);
}

std::optional<SweepValues> SweepValues::create(Dtype dtype, Dtype wire,
                                               bool isMean, int worldSize) {
  // Neither a sum of all ranks' values nor, for a mean, one value times the
  // number of ranks may need more bits than the narrower type has.
  const int bits = std::min(fractionBits(dtype), fractionBits(wire)) + 1;
  const int64_t largest =
      std::min(kLargest, (int64_t(1) << std::min(bits, 24)) / worldSize);
  if (largest == 0)
    return std::nullopt;
  return SweepValues(dtype, isMean, worldSize, largest);
}

int64_t SweepValues::contribution(int rank, int64_t i) const {
  const uint64_t mixed = (static_cast<uint64_t>(i) * 2654435761u +
                          static_cast<uint64_t>(rank) * 40503u + 12345u) >>
                         7;
  int64_t value =
      static_cast<int64_t>(mixed % static_cast<uint64_t>(2 * largest + 1)) -
      largest;
  while (isMean && !(dividesBack<float>(value, worldSize) &&
                     dividesBack<double>(value, worldSize)))
    value /= 2;
  return isMean ? value * worldSize : value;
}

std::vector<char>
SweepValues::repeat(const std::function<int64_t(int64_t i)> &element,
                    int64_t count) const {
  std::vector<double> period(std::min(kPeriod, count));
  for (size_t i = 0; i < period.size(); ++i)
    period[i] = static_cast<double>(element(i));
  std::vector<char> bytes(count * dtypeSize(dtype));
  host::castArray(period.data(), Dtype::F64, bytes.data(), dtype,
                  period.size());
  size_t done = period.size() * dtypeSize(dtype);
  while (done < bytes.size()) {
    // Copy whole periods: the previous part consists of one or more.
    const size_t more = std::min(done, bytes.size() - done);
    std::memcpy(bytes.data() + done, bytes.data(), more);
    done += more;
  }
  return bytes;
}

std::vector<char> SweepValues::input(int rank, int64_t count) const {
  return repeat([&](int64_t i) { return contribution(rank, i); }, count);
}

int64_t SweepValues::countWrong(const void *result, int64_t count) const {
  const auto reduced = [this](int64_t i) {
    int64_t sum = 0;
    for (int rank = 0; rank < worldSize; ++rank)
      sum += contribution(rank, i);
    return isMean ? sum / worldSize : sum;
  };
  const std::vector<char> expected = repeat(reduced, count);
  const char *bytes = static_cast<const char *>(result);
  if (expected.empty() ||
      std::memcmp(bytes, expected.data(), expected.size()) == 0)
    return 0;
  const size_t size = static_cast<size_t>(dtypeSize(dtype));
  int64_t wrong = 0;
  for (size_t at = 0; at < expected.size(); at += size)
    wrong += std::memcmp(bytes + at, expected.data() + at, size) != 0;
  return wrong;
}
