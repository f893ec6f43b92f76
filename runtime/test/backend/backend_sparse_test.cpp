// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// sparsify and densify of every backend's table, to the bit against a sort and
// sums one after the other: ties, infinities and NaNs, sizes around what a
// kernel's blocks take, arrays in place and without alignment, wrong places.

#include "backend/backend_test_util.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

using namespace ddphook;
using namespace ddphook::test;

namespace {

using Sparse = BackendTest;
INSTANTIATE_TEST_SUITE_P(, Sparse,
                         testing::Values("host", "cuda_emulated", "cuda"),
                         [](const auto &info) { return info.param; });

using Words = std::vector<uint32_t>;
enum class Kind { Normal, Ties, Special, Equal };

uint32_t bitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

float floatOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

Words makeValues(Kind kind, int64_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> small(-3, 3);
  Words words(static_cast<size_t>(count));
  for (uint32_t &word : words) {
    if (kind == Kind::Normal)
      word = bitsOf(normal(random));
    else if (kind == Kind::Ties)
      word = bitsOf(static_cast<float>(small(random)) / 2);
    else if (kind == Kind::Special)
      // All bits: every second exponent is an extreme one, or NaN's.
      word = static_cast<uint32_t>(random()) |
             (random() % 16 == 0 ? 0x7f800000U : 0U);
    else
      word = bitsOf(-1.5F);
  }
  return words;
}

std::vector<char> bytesOf(const Words &words) {
  const char *begin = reinterpret_cast<const char *>(words.data());
  return {begin, begin + words.size() * sizeof(uint32_t)};
}

Words wordsOf(const std::vector<char> &bytes) {
  Words words(bytes.size() / sizeof(uint32_t));
  if (!words.empty())
    std::memcpy(words.data(), bytes.data(), bytes.size());
  return words;
}

struct Split {
  Words entries, rest;
};

Split split(const Words &in, int64_t keep) {
  std::vector<uint32_t> order(in.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const uint32_t x = in[a] & 0x7fffffffU, y = in[b] & 0x7fffffffU;
    return x != y ? x > y : a < b;
  });
  order.resize(static_cast<size_t>(keep));
  std::sort(order.begin(), order.end());
  Split result = {{}, in};
  for (uint32_t &word : result.rest)
    if (keep > 0 && (word & 0x7fffffffU) >= 0x7f800000U)
      word = 0; // not finite
  for (uint32_t place : order) {
    result.entries.push_back(in[place]);
    result.rest[place] = 0;
  }
  result.entries.insert(result.entries.end(), order.begin(), order.end());
  return result;
}

} // namespace

TEST_P(Sparse, TakesTheLargest) {
  const unsigned seed = 31;
  RecordProperty("seed", static_cast<int>(seed));
  runAlone([&](Rank &rank) {
    for (int64_t count : {0, 1, 3, 255, 1023, 1024, 1025, 4099, 20000})
      for (Kind kind : {Kind::Normal, Kind::Ties, Kind::Special, Kind::Equal})
        for (int64_t keep :
             {int64_t{0}, std::min<int64_t>(1, count), count / 100,
              count / 2 + count % 2, std::max<int64_t>(0, count - 1), count})
          for (bool inPlace : {false, true}) {
            const Words in = makeValues(kind, count, seed);
            // One element behind an aligned address.
            const size_t shift = inPlace && count > 0 ? 1 : 0;
            Words shifted(shift, 0xabababab);
            shifted.insert(shifted.end(), in.begin(), in.end());
            const auto bytes = shifted.size() * sizeof(uint32_t);
            DeviceArray source(rank, bytesOf(shifted));
            DeviceArray other(rank, std::vector<char>(bytes, 'Z'));
            DeviceArray entries(
                rank, std::vector<char>(static_cast<size_t>(keep) * 8, 'Z'));
            DeviceArray &rest = inPlace ? source : other;
            ASSERT_EQ(rank.show(backend->sparsify(
                          rank.device, keep, source.get() + 4 * shift, count,
                          entries.get(), rest.get() + 4 * shift, &rank.error)),
                      "OK");
            const Split want = split(in, keep);
            ASSERT_EQ(wordsOf(entries.read()), want.entries)
                << keep << " of " << count;
            Words left = wordsOf(rest.read());
            if (shift > 0)
              ASSERT_EQ(left.front(), 0xababababU);
            left.erase(left.begin(), left.begin() + static_cast<int>(shift));
            ASSERT_EQ(left, want.rest) << keep << " of " << count;
          }
  });
}

TEST_P(Sparse, TakesTheLargestOfManyElements) {
  const unsigned seed = 32;
  RecordProperty("seed", static_cast<int>(seed));
  // More than a tile for each part that is searched.
  const int64_t count = (int64_t(1) << 20) + 777, keep = count / 100;
  runAlone([&](Rank &rank) {
    for (Kind kind : {Kind::Normal, Kind::Ties}) {
      const Words in = makeValues(kind, count, seed);
      DeviceArray source(rank, bytesOf(in));
      DeviceArray entries(rank, static_cast<uint64_t>(keep) * 8);
      ASSERT_EQ(rank.show(backend->sparsify(rank.device, keep, source.get(),
                                            count, entries.get(), source.get(),
                                            &rank.error)),
                "OK");
      const Split want = split(in, keep);
      EXPECT_TRUE(wordsOf(entries.read()) == want.entries);
      EXPECT_TRUE(wordsOf(source.read()) == want.rest);
    }
  });
}

TEST_P(Sparse, AddsInOrder) {
  const unsigned seed = 33;
  RecordProperty("seed", static_cast<int>(seed));
  runAlone([&](Rank &rank) {
    for (int64_t count : {1, 100, 8192, 8193, 20000})
      for (int64_t parts : {1, 2, 3, 130})
        for (int64_t keep : {int64_t{1}, count / 3 + 1, count}) {
          if (parts > 3 && keep * parts > 100000)
            continue;
          Words all;
          std::vector<float> sums(static_cast<size_t>(count), 0);
          for (int64_t part = 0; part < parts; ++part) {
            const Words in =
                makeValues(part % 2 ? Kind::Special : Kind::Normal, count,
                           seed + static_cast<unsigned>(part));
            const Words entries = split(in, keep).entries;
            const auto number = static_cast<size_t>(keep);
            for (size_t i = 0; i < number; ++i)
              sums[entries[number + i]] += floatOf(entries[i]);
            all.insert(all.end(), entries.begin(), entries.end());
          }
          DeviceArray source(rank, bytesOf(all));
          DeviceArray out(
              rank, std::vector<char>(static_cast<size_t>(count) * 4, 'Z'));
          ASSERT_EQ(
              rank.show(backend->densify(rank.device, source.get(), parts, keep,
                                         out.get(), count, &rank.error)),
              "OK");
          Words want;
          for (float sum : sums)
            want.push_back(bitsOf(sum));
          ASSERT_EQ(difference(out.read(), bytesOf(want), Dtype::F32), "")
              << keep << " of " << count << ", " << parts << " parts";
        }
    EXPECT_EQ(rank.show(backend->synchronize(rank.device, &rank.error)), "OK");
  });
}

TEST_P(Sparse, RefusesTooMany) {
  runAlone([&](Rank &rank) {
    DeviceArray in(rank, 16), entries(rank, 64);
    EXPECT_EQ(
        rank.show(backend->sparsify(rank.device, 5, in.get(), 4, entries.get(),
                                    in.get(), &rank.error)),
        "INVALID_ARGUMENT: expected to keep some of fewer than 2^31 elements, "
        "but got 5 of 4");
    EXPECT_EQ(backend->sparsify(rank.device, 1, in.get(), int64_t(1) << 31,
                                entries.get(), in.get(), &rank.error),
              DDPHOOK_INVALID_ARGUMENT);
  });
}

TEST_P(Sparse, FindsPlacesThatCannotBe) {
  // A device says what is wrong when somebody waits.
  for (const Words &entries : std::vector<Words>{
           {1, 1, 0, 4}, {1, 1, 0xffffffff, 2}, {1, 1, 2, 1}, {1, 1, 2, 2}})
    runAlone([&](Rank &rank) {
      DeviceArray source(rank, bytesOf(entries)), out(rank, 16);
      ddphook_status_t status = backend->densify(rank.device, source.get(), 1,
                                                 2, out.get(), 4, &rank.error);
      if (!isHost()) {
        EXPECT_EQ(rank.show(status), "OK");
        status = backend->synchronize(rank.device, &rank.error);
      }
      EXPECT_EQ(status, DDPHOOK_DATA_LOSS) << rank.error.message;
    });
}
