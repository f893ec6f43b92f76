// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddphook_rt_sparsify() and ddphook_rt_densify(): against a sort, and wrong
// calls. test/parity/test_foreign_hooks.py has them in hooks.

#include "job/job_test_util.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

using namespace ddphook;
using namespace ddphook::test;

namespace {

constexpr float kPoison = 12345;
using Floats = std::vector<float>;

class SparseCalls : public testing::Test {
protected:
  SparseCalls() {
    ddphook_options_t options = jobOptions(0, 1, 0, "auto", 10);
    EXPECT_EQ(show(ddphook_context_create(&options, &context)), "OK");
    EXPECT_EQ(show(ddphook_module_load(context, &module.compiled)), "OK");
  }
  ~SparseCalls() override {
    (void)ddphook_module_unload(&module.compiled);
    ddphook_context_destroy(context);
  }

  /// One step; gives its status.
  template <class Body>
  std::string step(const Body &body) {
    EXPECT_EQ(show(ddphook_rt_enter(module.handle, 0)), "OK");
    body(module.handle);
    return show(ddphook_rt_leave(module.handle));
  }

  TestModule module;
  ddphook_context_t *context = nullptr;
};

uint32_t magnitude(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits & 0x7fffffffU;
}

int32_t placeAt(const Floats &entries, size_t index) {
  int32_t place;
  std::memcpy(&place, &entries[index], sizeof(place));
  return place;
}

} // namespace

TEST_F(SparseCalls, TakesTheLargestAndAddsThem) {
  constexpr unsigned seed = 20260711;
  RecordProperty("seed", seed);
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  constexpr int64_t count = 3001;
  Floats in(count);
  for (float &value : in)
    value = normal(random);
  // Equal magnitudes, zeros of both signs, the smallest and the largest.
  std::fill(in.begin() + 100, in.begin() + 300, -2.5F);
  std::fill(in.begin() + 1000, in.begin() + 2000, -0.0F);
  in[2500] = std::numeric_limits<float>::denorm_min();
  in[2501] = std::numeric_limits<float>::infinity();
  in[2502] = std::numeric_limits<float>::quiet_NaN();
  std::vector<int32_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const uint32_t left = magnitude(in[static_cast<size_t>(a)]);
    const uint32_t right = magnitude(in[static_cast<size_t>(b)]);
    return left != right ? left > right : a < b;
  });

  for (int64_t keep : {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{90},
                       int64_t{2400}, count - 1, count}) {
    SCOPED_TRACE(keep);
    std::vector<int32_t> places(order.begin(), order.begin() + keep);
    std::sort(places.begin(), places.end());
    Floats entries(static_cast<size_t>(2 * keep + 1), kPoison),
        rest = in, sum(count, kPoison);
    ASSERT_EQ(step([&](ddphook_module_t *handle) {
                ddphook_rt_sparsify(handle, keep, rest.data(), count,
                                    entries.data(), rest.data());
                ddphook_rt_densify(handle, entries.data(), keep == 0 ? 0 : 1,
                                   keep, sum.data(), count);
              }),
              "OK");
    EXPECT_EQ(entries.back(), kPoison);
    Floats wantRest = in, wantSum(count, 0);
    for (float &value : wantRest)
      if (keep > 0 && !std::isfinite(value))
        value = 0;
    for (size_t i = 0; i < places.size(); ++i) {
      const auto place = static_cast<size_t>(places[i]);
      EXPECT_EQ(placeAt(entries, places.size() + i), places[i]);
      wantRest[place] = 0;
      wantSum[place] = 0 + in[place];
    }
    auto same = [](const Floats &a, const Floats &b) {
      return std::memcmp(a.data(), b.data(), count * sizeof(float)) == 0;
    };
    EXPECT_TRUE(same(rest, wantRest));
    EXPECT_TRUE(same(sum, wantSum));
  }
}

TEST_F(SparseCalls, RefusesToKeepMoreThanThereIs) {
  Floats in(4, 1), entries(10, 0), rest(4, 0);
  EXPECT_EQ(step([&](ddphook_module_t *handle) {
              ddphook_rt_sparsify(handle, 5, in.data(), 4, entries.data(),
                                  rest.data());
            }),
            "INVALID_ARGUMENT: expected to keep some of fewer than 2^31 "
            "elements, but got 5 of 4");
}

TEST_F(SparseCalls, RefusesPlacesBeyondTheArray) {
  Floats entries(2, 0), out(4, 0);
  const int32_t beyond = 4;
  std::memcpy(&entries[1], &beyond, sizeof(beyond));
  EXPECT_EQ(step([&](ddphook_module_t *handle) {
              ddphook_rt_densify(handle, entries.data(), 1, 1, out.data(), 4);
            }),
            "DATA_LOSS: expected ascending indices below 4 for a rank's "
            "largest elements, but got others");
}

TEST_F(SparseCalls, RefusesNullPointers) {
  Floats out(4, 0);
  EXPECT_EQ(step([&](ddphook_module_t *handle) {
              ddphook_rt_densify(handle, nullptr, 1, 1, out.data(), 4);
            }),
            "INVALID_ARGUMENT: ddphook_rt_densify: expected an array "
            "'entries', but got a "
            "null pointer");
}
