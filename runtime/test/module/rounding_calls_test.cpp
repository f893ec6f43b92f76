// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Stochastic rounding in ddphook_rt_collective() and its like in a world of
// one: what a reduction and its error have in common, and wrong calls. The bits
// are those of test/parity/test_rounding.py.

#include "job/job_test_util.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

using namespace ddphook;
using namespace ddphook::test;

namespace {

constexpr int64_t kCount = 1001;
constexpr float kPoison = 12345;
const TestCollective kCodes(kCount, "f32", "", false, 0, "i8", 32);
using Floats = std::vector<float>;

/// A job of one rank, which a wrong call ends.
class Job {
public:
  Job() : module({kCodes.withStream(5), kCodes.withStream(6), kCodes}) {
    ddphook_options_t options = jobOptions(0, 1, 0, "auto", 10);
    EXPECT_EQ(show(ddphook_context_create(&options, &context)), "OK");
    EXPECT_EQ(show(ddphook_module_load(context, &module.compiled)), "OK");
    std::mt19937_64 random(20261124);
    std::normal_distribution<float> normal;
    for (float &value : in)
      value = normal(random);
  }
  ~Job() {
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
  Floats reduce(int32_t collective, int64_t number) {
    Floats out(kCount, kPoison);
    EXPECT_EQ(step([&](ddphook_module_t *handle) {
                ddphook_rt_collective(handle, collective, in.data(), out.data(),
                                      number);
              }),
              "OK");
    return out;
  }
  std::string findError(int32_t encoding, int64_t block, int32_t group) {
    return step([&](ddphook_module_t *handle) {
      ddphook_rt_encoding_error(handle, in.data(), error.data(), kCount,
                                DDPHOOK_F32, encoding, block, group,
                                /*stream=*/5, /*step=*/1);
    });
  }

  Floats in = Floats(kCount), error = Floats(kCount, kPoison);

private:
  TestModule module;
  ddphook_context_t *context = nullptr;
};

} // namespace

TEST(RoundingCalls, DependOnStreamAndStep) {
  Job job;
  const Floats out = job.reduce(0, 1);
  EXPECT_EQ(out, job.reduce(0, 1));
  EXPECT_NE(out, job.reduce(1, 1));
  EXPECT_NE(out, job.reduce(0, 2));
  Floats started(kCount, kPoison);
  EXPECT_EQ(job.step([&](ddphook_module_t *handle) {
    ddphook_rt_wait(handle, ddphook_rt_collective_start(
                                handle, 0, job.in.data(), started.data(), 1));
  }),
            "OK");
  EXPECT_EQ(out, started);
}

TEST(RoundingCalls, IgnoreTheStepWithoutAStream) {
  Job job;
  EXPECT_EQ(job.reduce(2, 1), job.reduce(2, 2));
}

/// What the first of two encodings loses: less than one code of 127.
TEST(RoundingCalls, HaveTheErrorOfTheFirstEncoding) {
  Job job;
  ASSERT_EQ(job.findError(DDPHOOK_ENCODING_I8, 32, 0), "OK");
  int64_t lost = 0;
  for (size_t block = 0; block < job.in.size(); block += 32) {
    const size_t end = std::min(job.in.size(), block + 32);
    float largest = 0;
    for (size_t i = block; i < end; ++i)
      largest = std::max(largest, std::fabs(job.in[i]));
    for (size_t i = block; i < end; ++i) {
      // The scale was rounded, by less than a 128th.
      EXPECT_LT(std::fabs(job.error[i]), largest / 126) << i;
      lost += job.error[i] != 0;
    }
  }
  EXPECT_GT(lost, kCount / 2);
}

TEST(RoundingCalls, RefuseOtherCodes) {
  EXPECT_EQ(Job().findError(DDPHOOK_ENCODING_F16, 0, 0),
            "INVALID_ARGUMENT: ddphook_rt_encoding_error: expected no process "
            "group, because encoding 1 has no scale for each block, but got 0");
  EXPECT_EQ(Job().findError(DDPHOOK_ENCODING_F16, 0, -1), "OK");
  EXPECT_EQ(Job().findError(DDPHOOK_ENCODING_I8, 33, 0),
            "INVALID_ARGUMENT: ddphook_rt_encoding_error: expected "
            "a block of encoding 3, but got 33 elements");
  EXPECT_EQ(Job().findError(DDPHOOK_ENCODING_I8, 32, 1),
            "INVALID_ARGUMENT: ddphook_rt_encoding_error: expected "
            "one of 1 process groups, but got 1");
}
