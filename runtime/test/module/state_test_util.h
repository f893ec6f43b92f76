// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gives a module made by hand states, as PowerSGD has them.

#pragma once

#include "job/job_test_util.h"

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
  std::string role = "";
  std::string gradients = "[]"; ///< A JSON list of lists.
  std::string method = "";
  std::string kind = "";

  int64_t bytes() const {
    return elements * (dtype == "f64" || dtype == "i64"   ? 8
                       : dtype == "f32" || dtype == "i32" ? 4
                                                          : 2);
  }
};

/// A state of PowerSGD, as the compiler describes it.
inline TestState powersgdState(std::string name, std::string dtype,
                               std::string shapes, int64_t elements,
                               std::string role, std::string gradients) {
  TestState state = {std::move(name), std::move(dtype), std::move(shapes),
                     elements};
  state.kind = role == "iter"                           ? "iteration"
               : role == "q"                            ? "factor"
               : role == "error" || role == "generator" ? role
                                                        : "";
  state.role = "powersgd." + role;
  state.gradients = std::move(gradients);
  state.isPerRank = role == "error";
  if (role == "error" || role == "q")
    state.method = "mean #ddp.powersgd";
  if (role == "generator") {
    state.init = "mt19937";
    state.seed = 42;
  }
  if (role == "q") {
    state.init = "normal";
    state.generator = "powersgd.generator";
    state.draws = "[" + std::to_string(elements) + "]";
  }
  return state;
}

/// The states of a bucket under PowerSGD, and of a second one in 16 bits.
inline std::vector<TestState> powersgdStates() {
  const std::string all = R"([["w","b","v"]])";
  std::vector<TestState> states = {
      powersgdState("powersgd.iter", "i64", "[[]]", 1, "iter", all),
      powersgdState("powersgd.generator", "i32", "[[625]]", 625, "generator",
                    all),
      powersgdState("b0.error", "f32", "[[30,20],[20]]", 620, "error",
                    R"([["w"],["b"]])"),
      powersgdState("b0.q", "f32", "[[20,2]]", 40, "q", R"([["w"]])"),
      powersgdState("b1.error", "bf16", "[[7,3]]", 21, "error", R"([["v"]])"),
      powersgdState("b1.q", "bf16", "[[3,1],[2,1]]", 5, "q", R"([["v"]])")};
  states.back().draws = "[3,2]";
  return states;
}

/// Replaces the plan's states; each begins at a multiple of 64 bytes.
inline void setStates(TestModule &module,
                      const std::vector<TestState> &states) {
  std::string list;
  int64_t offset = 0;
  for (const TestState &state : states) {
    list +=
        (list.empty() ? "" : ",") + std::string(R"({"name":")") + state.name +
        R"(","dtype":")" + state.dtype + R"(","shapes":)" + state.shapes +
        (state.kind.empty() ? "" : R"(,"kind":")" + state.kind + '"') +
        R"(,"role":")" + state.role + R"(","gradients":)" + state.gradients +
        R"(,"method":")" + state.method + R"(","placement":")" +
        (state.isPerRank ? "per_rank" : "replicated") + R"(","init":")" +
        state.init + R"(","seed":)" + std::to_string(state.seed) +
        R"(,"generator":")" + state.generator + R"(","draws":)" + state.draws +
        R"(,"offset":)" + std::to_string(offset) + R"(,"bytes":)" +
        std::to_string(state.bytes()) + "}";
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
