// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loading and stepping a module in a rank, and looking at what all ranks said:
// shared by the tests of jobs that go well and of jobs that do not.

#pragma once

#include "base/status_test_util.h"
#include "job/job_test_util.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <tuple>

namespace ddphook::test {

/// What a loaded machine may add to a time that a test asserts, in seconds.
inline constexpr double room = 20;
/// A deadline that nobody must have waited for, if the time is within `room`.
inline constexpr double farDeadline = 60;

/// Joins, loads `module`, runs `body` and leaves; the first error is the
/// result, else what `body` returns.
inline std::string
withModule(const ddphook_options_t &options, TestModule &module,
           const std::function<std::string(ddphook_context_t *)> &body) {
  ddphook_context_t *context = nullptr;
  ddphook_status_t status = ddphook_context_create(&options, &context);
  if (status != DDPHOOK_OK)
    return "create " + show(status);
  status = ddphook_module_load(context, &module.compiled);
  std::string result =
      status == DDPHOOK_OK ? body(context) : "load " + show(status);
  ddphook_context_destroy(context);
  if (module.handle)
    return "destroying the context left the module loaded";
  return result;
}

/// One step that all-reduces collective 0 in place.
inline std::string step(TestModule &module, std::vector<float> &data) {
  ddphook_status_t status = ddphook_rt_enter(module.handle, 0);
  if (status != DDPHOOK_OK)
    return "enter " + show(status);
  ddphook_rt_collective(module.handle, 0, data.data(), data.data(), /*step=*/0);
  return show(ddphook_rt_leave(module.handle));
}

/// A list of process groups with one that says its size.
inline std::string groupOf(int ranks) {
  return R"([{"name":"dp","size":)" + std::to_string(ranks) +
         R"(,"ranks":[],"placement":"","parent":"","topology":"flat"}])";
}

/// One step that runs collective 0, whatever it is.
inline std::string exchange(TestModule &module, const void *in, void *out) {
  ddphook_status_t status = ddphook_rt_enter(module.handle, 0);
  if (status != DDPHOOK_OK)
    return "enter " + show(status);
  ddphook_rt_collective(module.handle, 0, in, out, /*step=*/0);
  return show(ddphook_rt_leave(module.handle));
}

inline std::vector<std::string> texts(const std::vector<RankResult> &results) {
  std::vector<std::string> all;
  for (const RankResult &result : results)
    all.push_back(result.isHung ? "hung" : result.text);
  return all;
}

inline void expectAll(const std::vector<RankResult> &results,
                      const std::string &expected) {
  for (const std::string &text : texts(results))
    EXPECT_EQ(text, expected);
}

inline void sleepMs(int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

/// Tests for a transport and a number of ranks.
class JobTest : public testing::TestWithParam<std::tuple<const char *, int>> {
protected:
  const char *transport() const { return std::get<0>(GetParam()); }
  int world() const { return std::get<1>(GetParam()); }
};

inline std::string
nameOf(const testing::TestParamInfo<JobTest::ParamType> &info) {
  return std::string(std::get<0>(info.param)) + "W" +
         std::to_string(std::get<1>(info.param));
}

} // namespace ddphook::test
