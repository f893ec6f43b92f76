// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// takeLargest() on every instruction set against a sort, to the bit, for data
// that make estimates fail: few values, few large elements, an order, a period,
// elements that are not finite, and a sample that misleads.

#include "backends/host/kernels_test_util.h"

#include <functional>
#include <numeric>

using namespace ddphook;
using namespace ddphook::host;

namespace {

using Words = std::vector<uint32_t>;
constexpr uint32_t kInfinity = 0x7f800000, kMagnitude = 0x7fffffff;

uint32_t bitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

/// Where takeLargest() looks first if there are `n` elements.
std::vector<size_t> samplePlaces(size_t n) {
  const size_t samples = std::min<size_t>(n / 64, 16384), stride = n / samples;
  std::vector<size_t> places;
  for (uint32_t i = 0; i < samples; ++i)
    places.push_back(i * stride + (i * 0x9e3779b9U * stride >> 32));
  return places;
}

/// Bits of element `i` of `n`.
using Kind = std::function<uint32_t(uint32_t i, uint32_t n)>;

class Sparse : public KernelTest {
protected:
  /// Compares takeLargest() with a sort, whether or not `rest` is the input.
  void check(const Words &in, const std::vector<size_t> &keeps) {
    std::vector<uint32_t> order(in.size());
    std::iota(order.begin(), order.end(), 0U);
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      const uint32_t left = in[a] & kMagnitude, right = in[b] & kMagnitude;
      return left != right ? left > right : a < b;
    });
    for (size_t keep : keeps) {
      SCOPED_TRACE(testing::Message() << keep << " of " << in.size());
      Words taken(order.begin(), order.begin() + static_cast<ptrdiff_t>(keep));
      std::sort(taken.begin(), taken.end());
      Words entries, rest = in;
      for (uint32_t &word : rest)
        if (keep > 0 && (word & kMagnitude) >= kInfinity)
          word = 0;
      for (uint32_t place : taken) {
        entries.push_back(in[place]);
        rest[place] = 0;
      }
      entries.insert(entries.end(), taken.begin(), taken.end());
      for (bool inPlace : {false, true})
        checkOne(in, entries, rest, inPlace);
    }
  }

private:
  void checkOne(const Words &in, const Words &wantEntries,
                const Words &wantRest, bool inPlace) {
    const auto n = static_cast<int64_t>(in.size());
    const auto words = static_cast<int64_t>(wantEntries.size());
    Array source(Dtype::F32, n), other(Dtype::F32, n);
    Array entries(Dtype::F32, words);
    std::memcpy(source.data(), in.data(), 4 * in.size());
    Array &rest = inPlace ? source : other;
    takeLargest(static_cast<const float *>(source.data()), n, words / 2,
                entries.data(), static_cast<float *>(rest.data()), scratch);
    auto hold = [](const Array &array, const Words &want) {
      return want.empty() ||
             std::memcmp(array.data(), want.data(), 4 * want.size()) == 0;
    };
    EXPECT_TRUE(hold(entries, wantEntries));
    EXPECT_TRUE(hold(rest, wantRest));
    EXPECT_TRUE(hold(source, inPlace ? wantRest : in));
  }

  Candidates scratch;
};

INSTANTIATE_TEST_SUITE_P(Targets, Sparse, testing::ValuesIn(targets()),
                         targetNameOf);

} // namespace

TEST_P(Sparse, takesTheLargestOfAnyData) {
  auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  const uint32_t sign = 1U << 31, one = bitsOf(1);
  const std::pair<const char *, Kind> kinds[] = {
      {"any bits", [&](uint32_t, uint32_t) { return below(~0U); }},
      {"zeros", [&](uint32_t i, uint32_t) { return i % 2 * sign; }},
      {"equal", [&](uint32_t i, uint32_t) { return one + i % 2 * sign; }},
      {"two values", [&](uint32_t, uint32_t) { return one + below(2); }},
      {"ascending", [](uint32_t i, uint32_t) { return i; }},
      {"descending", [](uint32_t i, uint32_t n) { return n - i; }},
      {"one large",
       [&](uint32_t i, uint32_t n) { return i == n / 2 ? one : i % 2; }},
      {"few", [&](uint32_t, uint32_t) { return below(1000) ? 0 : one; }},
      {"subnormal",
       [&](uint32_t i, uint32_t) { return below(4000) + i % 2 * sign; }},
      {"a period", [](uint32_t i, uint32_t) { return i % 64 == 7; }},
      {"a large end", [](uint32_t i, uint32_t n) { return i + n / 80 > n; }},
      {"NaNs", [&](uint32_t, uint32_t) { return kInfinity + 1 + below(99); }},
      {"half not finite", [&](uint32_t i, uint32_t) {
         return below(2) ? one : sign + kInfinity + i % 3;
       }}};
  for (uint32_t n : {1, 63, 64, 700, 5000, 70001})
    for (const auto &[name, kind] : kinds) {
      SCOPED_TRACE(name);
      Words in(n);
      for (uint32_t i = 0; i < n; ++i)
        in[i] = kind(i, n);
      check(in, {0, 1, n / 1000, n / 100, n / 10, n / 2, n - 1, n});
    }
}

TEST_P(Sparse, takesTheLargestIfTheSampleMisleads) {
  // More elements than there is memory for candidates.
  const uint32_t n = 400000, large = 1U << 30;
  for (bool isLarge : {false, true}) {
    SCOPED_TRACE(isLarge);
    Words in(n);
    for (uint32_t i = 0; i < n; ++i)
      in[i] = isLarge ? i : large + i;
    for (size_t place : samplePlaces(n))
      in[place] = isLarge ? large : 0;
    check(in, {1, 5000, 40000});
  }
}
