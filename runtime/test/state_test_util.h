//===- state_test_util.h - modules with states in tests ---------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gives a module made by hand states, as PowerSGD has them.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_TEST_STATE_TEST_UTIL_H
#define DDPHOOK_RUNTIME_TEST_STATE_TEST_UTIL_H

#include "job_test_util.h"

namespace ddphook::test {

struct TestState {
  std::string name;
  std::string dtype;
  std::string shapes; ///< A JSON list.
  int64_t elements;
  bool isPerRank = false;
  std::string init = "zero";
  int64_t seed = 0;
  std::string generator = "";
  std::string draws = "[]";

  int64_t bytes() const {
    return elements * (dtype == "f64" || dtype == "i64"   ? 8
                       : dtype == "f32" || dtype == "i32" ? 4
                                                          : 2);
  }
};

/// The states of a bucket under PowerSGD, and of a second one in 16 bits.
inline std::vector<TestState> powersgdStates() {
  return {{"powersgd.iter", "i64", "[[]]", 1},
          {"powersgd.generator", "i32", "[[625]]", 625, false, "mt19937", 42},
          {"b0.error", "f32", "[[30,20],[20]]", 620, true},
          {"b0.q", "f32", "[[20,2]]", 40, false, "normal", 0,
           "powersgd.generator", "[40]"},
          {"b1.error", "bf16", "[[7,3]]", 21, true},
          {"b1.q", "bf16", "[[3,1],[2,1]]", 5, false, "normal", 0,
           "powersgd.generator", "[3,2]"}};
}

/// Replaces the plan's states; each begins at a multiple of 64 bytes.
inline void setStates(TestModule &module,
                      const std::vector<TestState> &states) {
  std::string list;
  int64_t offset = 0;
  for (const TestState &state : states) {
    list += (list.empty() ? "" : ",") + std::string(R"({"name":")") +
            state.name + R"(","dtype":")" + state.dtype + R"(","shapes":)" +
            state.shapes + R"(,"placement":")" +
            (state.isPerRank ? "per_rank" : "replicated") + R"(","init":")" +
            state.init + R"(","seed":)" + std::to_string(state.seed) +
            R"(,"generator":")" + state.generator + R"(","draws":)" +
            state.draws + R"(,"offset":)" + std::to_string(offset) +
            R"(,"bytes":)" + std::to_string(state.bytes()) + "}";
    offset = (offset + state.bytes() + 63) / 64 * 64;
  }
  std::string plan = module.plan;
  auto replace = [&plan](const std::string &from, const std::string &to) {
    plan.replace(plan.find(from), from.size(), to);
  };
  replace(R"("states":[])", R"("states":[)" + list + "]");
  replace(R"("state_arena":{"bytes":0)",
          R"("state_arena":{"bytes":)" + std::to_string(offset));
  module.setPlan(plan);
}

} // namespace ddphook::test

#endif // DDPHOOK_RUNTIME_TEST_STATE_TEST_UTIL_H
