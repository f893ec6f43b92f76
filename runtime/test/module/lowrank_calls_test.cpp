// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The calls of compiled.h on a list of several matrices and pieces: fused
// passes against the calls that they fuse, and wrong calls. The arithmetic of
// one matrix is tested in lowrank_*_test.cpp.

#include "base/random.h"
#include "job/job_test_util.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

using namespace ddphook;
using namespace ddphook::test;

namespace {

// Elements 5 … 84 of a bucket of 90: a piece, 8 x 6 of rank 2, a piece, 5 x 4
// of rank 3; factors and pieces elsewhere in another order.
const char *kList = R"({"dtype":"f32","begin":5,"end":85,)"
                    R"("matrices":[[62,1,20,5,4,3],[12,17,2,8,6,2]],)"
                    R"("pieces":[[5,1,7],[60,8,2],[82,10,3]]})";
constexpr int kBucket = 90, kP = 34, kQ = 33, kRest = 14;
constexpr float kPoison = 12345;

using Floats = std::vector<float>;

Floats poisoned(int n) { return Floats(static_cast<size_t>(n), kPoison); }

Floats randomFloats(int n, std::mt19937_64 &random) {
  std::normal_distribution<float> normal;
  Floats values(static_cast<size_t>(n));
  for (float &value : values)
    value = normal(random);
  return values;
}

bool sameBits(const Floats &a, const Floats &b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class LowRankCalls : public testing::Test {
protected:
  LowRankCalls() {
    std::string plan = module.plan;
    const std::string empty = R"("matrix_lists":[])";
    plan.replace(plan.find(empty), empty.size(),
                 std::string(R"("matrix_lists":[)") + kList + "]");
    module.setPlan(plan);
    RecordProperty("seed", kSeed);
  }
  ~LowRankCalls() override {
    (void)ddphook_module_unload(&module.compiled);
    ddphook_context_destroy(context);
  }

  void load(int rank = 0, int worldSize = 1, int port = 0) {
    ddphook_options_t options = jobOptions(rank, worldSize, port, "auto", 10);
    ASSERT_EQ(show(ddphook_context_create(&options, &context)), "OK");
    ASSERT_EQ(show(ddphook_module_load(context, &module.compiled)), "OK");
  }

  /// One step; gives its status.
  template <class Body>
  std::string step(const Body &body) {
    EXPECT_EQ(show(ddphook_rt_enter(module.handle, 0)), "OK");
    body(module.handle);
    return show(ddphook_rt_leave(module.handle));
  }

  static constexpr int kSeed = 20250711;
  std::mt19937_64 random{kSeed};
  TestModule module;
  ddphook_context_t *context = nullptr;
};

} // namespace

TEST_F(LowRankCalls, ProjectIsAddAndMatmul) {
  load();
  const Floats g = randomFloats(kBucket, random);
  const Floats e = randomFloats(kBucket, random);
  Floats q = randomFloats(kQ, random);
  Floats sum = poisoned(kBucket), p = poisoned(kP);
  Floats m = sum, fusedP = p, rest = poisoned(kRest);
  ASSERT_EQ(step([&](ddphook_module_t *handle) {
              ddphook_rt_add(handle, g.data(), e.data(), sum.data(), kBucket,
                             DDPHOOK_F32);
              ddphook_rt_matmul(handle, 0, DDPHOOK_MATMUL_P, sum.data(),
                                p.data(), q.data());
              ddphook_rt_project(handle, 0, g.data(), e.data(), q.data(),
                                 m.data(), fusedP.data(), rest.data());
            }),
            "OK");
  // The elements outside of the list keep their values.
  for (int i = 0; i < kBucket; ++i)
    EXPECT_EQ(m[i], i >= 5 && i < 85 ? sum[i] : kPoison) << i;
  EXPECT_TRUE(sameBits(p, fusedP));
  EXPECT_EQ(std::count(p.begin(), p.end(), kPoison), 1 + 2);
  const Floats wantRest = {kPoison, sum[5],  sum[6],  sum[7],  sum[8],
                           sum[9],  sum[10], sum[11], sum[60], sum[61],
                           sum[82], sum[83], sum[84], kPoison};
  EXPECT_EQ(rest, wantRest);
  // P's first matrix is that of the second place in the bucket.
  double product = 0;
  for (int j = 0; j < 4; ++j)
    product += static_cast<double>(sum[62 + j]) * q[20 + 3 * j];
  EXPECT_NEAR(p[1], product, 1e-5);

  // Without error feedback, from g itself.
  Floats plainRest = poisoned(kRest), plainP = poisoned(kP);
  ASSERT_EQ(step([&](ddphook_module_t *handle) {
              ddphook_rt_project(handle, 0, sum.data(), nullptr, q.data(),
                                 nullptr, plainP.data(), plainRest.data());
            }),
            "OK");
  EXPECT_TRUE(sameBits(plainP, p));
  EXPECT_EQ(plainRest, rest);
}

TEST_F(LowRankCalls, ReconstructIsMatmulAndSubtract) {
  load();
  Floats p = randomFloats(kP, random), q = randomFloats(kQ, random);
  const Floats m = randomFloats(kBucket, random);
  const Floats rest = randomFloats(kRest, random);
  Floats product = poisoned(kBucket), difference = poisoned(kBucket);
  Floats out = product, err = product, plain = product;
  ASSERT_EQ(
      step([&](ddphook_module_t *handle) {
        ddphook_rt_matmul(handle, 0, DDPHOOK_MATMUL_M, product.data(), p.data(),
                          q.data());
        std::copy(rest.begin() + 1, rest.begin() + 8, product.begin() + 5);
        std::copy(rest.begin() + 8, rest.begin() + 10, product.begin() + 60);
        std::copy(rest.begin() + 10, rest.begin() + 13, product.begin() + 82);
        ddphook_rt_subtract(handle, m.data(), product.data(), difference.data(),
                            kBucket, DDPHOOK_F32);
        ddphook_rt_reconstruct(handle, 0, p.data(), q.data(), rest.data(),
                               m.data(), out.data(), err.data(), -1);
        ddphook_rt_reconstruct(handle, 0, p.data(), q.data(), rest.data(),
                               nullptr, plain.data(), nullptr, -1);
      }),
      "OK");
  EXPECT_TRUE(sameBits(out, product));
  EXPECT_TRUE(sameBits(plain, product));
  for (int i = 0; i < kBucket; ++i)
    EXPECT_EQ(err[i], i >= 5 && i < 85 ? difference[i] : kPoison) << i;
}

/// What `sum` needs: the error is the difference to the mean.
TEST_F(LowRankCalls, ReconstructDividesByTheWorld) {
  const int port = freePort();
  std::vector<RankResult> results = runRanks(2, [&](int rank) -> std::string {
    load(rank, 2, port);
    if (!module.handle)
      return "not loaded";
    Floats p = randomFloats(kP, random), q = randomFloats(kQ, random);
    const Floats m = randomFloats(kBucket, random);
    const Floats rest = randomFloats(kRest, random);
    Floats out = poisoned(kBucket), err = m;
    std::string status = step([&](ddphook_module_t *handle) {
      ddphook_rt_reconstruct(handle, 0, p.data(), q.data(), rest.data(),
                             err.data(), out.data(), err.data(), 0);
    });
    (void)ddphook_module_unload(&module.compiled);
    ddphook_context_destroy(context);
    for (size_t i = 5; i < 85; ++i)
      if (err[i] != m[i] - out[i] / 2)
        status += " element " + std::to_string(i);
    return status + (out[5] == rest[1] ? "" : " rest");
  });
  for (const RankResult &result : results)
    EXPECT_EQ(result.text, "OK");
}

TEST_F(LowRankCalls, OneStepOfPowerSgd) {
  load();
  // Of rank 2 and 3, and so are found again, whatever Q begins with.
  Floats q = randomFloats(kQ, random), p = randomFloats(kP, random);
  Floats m = poisoned(kBucket), out = m, rest = poisoned(kRest);
  ASSERT_EQ(step([&](ddphook_module_t *handle) {
              ddphook_rt_matmul(handle, 0, DDPHOOK_MATMUL_M, m.data(), p.data(),
                                q.data());
              q = randomFloats(kQ, random);
              p = poisoned(kP);
              ddphook_rt_orthogonalize(handle, 0, DDPHOOK_FACTOR_Q, q.data(),
                                       q.data(), 0);
              ddphook_rt_project(handle, 0, m.data(), nullptr, q.data(),
                                 nullptr, p.data(), rest.data());
              ddphook_rt_orthogonalize(handle, 0, DDPHOOK_FACTOR_P, p.data(),
                                       p.data(), 0);
              ddphook_rt_matmul(handle, 0, DDPHOOK_MATMUL_Q, m.data(), p.data(),
                                q.data());
              ddphook_rt_reconstruct(handle, 0, p.data(), q.data(), rest.data(),
                                     nullptr, out.data(), nullptr, -1);
            }),
            "OK");
  for (int i = 5; i < 85; ++i)
    EXPECT_NEAR(out[i], m[i], 1e-4) << i;
}

TEST_F(LowRankCalls, RandomNormalDrawsAndMovesTheGenerator) {
  load();
  std::vector<int32_t> generator(generatorElements), expected;
  seedGenerator(99, generator.data());
  expected = generator;
  const int64_t draws[] = {3, 20};
  Floats numbers = poisoned(24), want(23);
  ASSERT_TRUE(
      drawNormal(expected.data(), draws, 2, want.data(), Dtype::F32).isOk());
  ASSERT_EQ(step([&](ddphook_module_t *handle) {
              ddphook_rt_random_normal(handle, generator.data(), draws, 2,
                                       numbers.data(), DDPHOOK_F32);
            }),
            "OK");
  EXPECT_EQ(generator, expected);
  EXPECT_EQ(numbers[23], kPoison);
  numbers.pop_back();
  EXPECT_TRUE(sameBits(numbers, want));
  // Nothing to draw still takes a number.
  ASSERT_TRUE(
      drawNormal(expected.data(), nullptr, 0, nullptr, Dtype::F32).isOk());
  ASSERT_EQ(step([&](ddphook_module_t *handle) {
              ddphook_rt_random_normal(handle, generator.data(), nullptr, 0,
                                       nullptr, DDPHOOK_F32);
            }),
            "OK");
  EXPECT_EQ(generator, expected);
}

/// Each wrong call ends its job, so each has one of its own.
TEST_F(LowRankCalls, WrongCalls) {
  Floats a = poisoned(kBucket);
  float *x = a.data();
  std::vector<int32_t> generator(generatorElements);
  const int64_t negative[] = {-1};
  using Call = std::function<void(ddphook_module_t *)>;
  const std::pair<Call, const char *> calls[] = {
      {[&](auto *h) { ddphook_rt_matmul(h, 1, 0, x, x, x); },
       "ddphook_rt_matmul: expected one of 1 matrix lists, but got 1"},
      {[&](auto *h) { ddphook_rt_matmul(h, -1, 0, x, x, x); },
       "ddphook_rt_matmul: expected one of 1 matrix lists, but got -1"},
      {[&](auto *h) { ddphook_rt_matmul(h, 0, 3, x, x, x); },
       "ddphook_rt_matmul: expected a product from 0 to 2, but got 3"},
      {[&](auto *h) { ddphook_rt_matmul(h, 0, 0, x, nullptr, x); },
       "ddphook_rt_matmul: expected an array 'p', but got a null pointer"},
      {[&](auto *h) { ddphook_rt_orthogonalize(h, 0, 8, x, x, 0); },
       "ddphook_rt_orthogonalize: expected a factor, 0 or 1, optionally plus 2 "
       "for unit columns and 4 for independent columns, but got 8"},
      {[&](auto *h) { ddphook_rt_project(h, 0, x, x, x, nullptr, x, x); },
       "ddphook_rt_project: expected both arrays of error feedback or none, "
       "but got one"},
      {[&](auto *h) {
         ddphook_rt_project(h, 0, x, nullptr, x, nullptr, x, nullptr);
       },
       "ddphook_rt_project: expected an array for the remaining elements, but "
       "got a null pointer"},
      {[&](auto *h) {
         ddphook_rt_reconstruct(h, 0, x, x, x, nullptr, x, x, -1);
       },
       "ddphook_rt_reconstruct: expected both arrays of error feedback or "
       "none, but got one"},
      {[&](auto *h) {
         ddphook_rt_reconstruct(h, 0, x, x, x, nullptr, x, nullptr, 1);
       },
       "ddphook_rt_reconstruct: expected one of 1 process groups, but got 1"},
      {[&](auto *h) { ddphook_rt_reconstruct_others(h, 1, x, x, x, x); },
       "ddphook_rt_reconstruct_others: expected one of 1 matrix lists, but got "
       "1"},
      {[&](auto *h) { ddphook_rt_measure_product(h, 0, 0, x, x, nullptr); },
       "ddphook_rt_measure_product: expected an array 'q', but got a null "
       "pointer"},
      {[&](auto *h) { ddphook_rt_add(h, x, nullptr, x, 1, DDPHOOK_F32); },
       "ddphook_rt_add: expected an array 'b', but got a null pointer"},
      {[&](auto *h) { ddphook_rt_subtract(h, x, x, x, 1, 4); },
       "ddphook_rt_subtract: expected the number of an element type to compute "
       "with, but got 4"},
      {[&](auto *h) {
         ddphook_rt_random_normal(h, generator.data(), negative, 1, x,
                                  DDPHOOK_F32);
       },
       "ddphook_rt_random_normal: expected draws of at least 0 elements whose "
       "sum "
       "fits in memory, but one is negative or the sum is too large"},
      {[&](auto *h) {
         ddphook_rt_random_normal(h, nullptr, nullptr, 0, x, DDPHOOK_F32);
       },
       "ddphook_rt_random_normal: expected an array 'generator', but got a "
       "null "
       "pointer"}};
  for (const auto &[call, message] : calls) {
    load();
    EXPECT_EQ(step(call), std::string("INVALID_ARGUMENT: ") + message);
    (void)ddphook_module_unload(&module.compiled);
    ddphook_context_destroy(context);
    context = nullptr;
    EXPECT_EQ(std::count(a.begin(), a.end(), kPoison), kBucket);
  }
}

TEST_F(LowRankCalls, TooLargeFactorsAreRefusedWhenLoading) {
  std::string plan = module.plan;
  const std::string small = kList;
  plan.replace(plan.find(small), small.size(),
               R"({"dtype":"f32","begin":0,"end":0,"matrices":[[0,0,0,0,)"
               R"(1152921504606846975,1]],"pieces":[]})");
  module.setPlan(plan);
  ddphook_options_t options = jobOptions(0, 1, 0, "auto", 10);
  ASSERT_EQ(show(ddphook_context_create(&options, &context)), "OK");
  EXPECT_NE(ddphook_module_load(context, &module.compiled), DDPHOOK_OK);
  EXPECT_STRNE(ddphook_last_error(), "");
}
