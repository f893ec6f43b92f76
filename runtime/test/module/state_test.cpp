// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a loaded module's states hold before the first step.

#include "base/random.h"
#include "module/state_test_util.h"

#include <gtest/gtest.h>

#include <cstring>

using namespace ddphook;
using namespace ddphook::test;

namespace {

/// A world of one with a module that has `states`.
class StateTest : public testing::Test {
protected:
  ~StateTest() override {
    (void)ddphook_module_unload(&module.compiled);
    ddphook_context_destroy(context);
  }

  void load(const std::vector<TestState> &states) {
    ddphook_options_t options = jobOptions(0, 1, 0, "auto", 10);
    ASSERT_EQ(show(ddphook_context_create(&options, &context)), "OK");
    setStates(module, states);
    ASSERT_EQ(show(ddphook_module_load(context, &module.compiled)), "OK");
  }

  template <typename T>
  std::vector<T> state(int number, size_t count) {
    std::vector<T> values(count);
    EXPECT_EQ(show(ddphook_rt_enter(module.handle, 0)), "OK");
    std::memcpy(values.data(), ddphook_rt_state(module.handle, number),
                count * sizeof(T));
    EXPECT_EQ(show(ddphook_rt_leave(module.handle)), "OK");
    return values;
  }

  TestModule module;
  ddphook_context_t *context = nullptr;
};

} // namespace

TEST_F(StateTest, FirstValues) {
  load(powersgdStates());
  // What PyTorch's hook would have after its first compressed step's draws.
  std::vector<int32_t> generator(generatorElements);
  seedGenerator(42, generator.data());
  const int64_t draws[] = {40, 3, 2};
  std::vector<float> q0(40);
  std::vector<uint16_t> q1(5);
  ASSERT_TRUE(
      drawNormal(generator.data(), draws, 1, q0.data(), Dtype::F32).isOk());
  ASSERT_TRUE(drawNormal(generator.data(), draws + 1, 2, q1.data(), Dtype::BF16)
                  .isOk());
  EXPECT_EQ(state<int64_t>(0, 1), std::vector<int64_t>{0});
  EXPECT_EQ(state<int32_t>(1, 625), generator);
  EXPECT_EQ(state<float>(2, 620), std::vector<float>(620, 0.0f));
  EXPECT_EQ(state<float>(3, 40), q0);
  EXPECT_EQ(state<uint16_t>(4, 21), std::vector<uint16_t>(21, 0));
  EXPECT_EQ(state<uint16_t>(5, 5), q1);
}

/// A bucket that compresses nothing takes a number from the generator too.
TEST_F(StateTest, NothingDrawn) {
  load({{"generator", "i32", "[[625]]", 625, false, "mt19937", 7},
        {"b0.q", "f64", "[]", 0, false, "normal", 0, "generator", "[]"},
        {"b1.q", "f64", "[[2]]", 2, false, "normal", 0, "generator", "[2]"}});
  std::vector<int32_t> generator(generatorElements);
  seedGenerator(7, generator.data());
  const int64_t draws[] = {2};
  std::vector<double> q(2);
  ASSERT_TRUE(
      drawNormal(generator.data(), nullptr, 0, nullptr, Dtype::F64).isOk());
  ASSERT_TRUE(
      drawNormal(generator.data(), draws, 1, q.data(), Dtype::F64).isOk());
  EXPECT_EQ(state<int32_t>(0, 625), generator);
  EXPECT_EQ(state<double>(2, 2), q);
}

TEST_F(StateTest, AGeneratorOfNobody) {
  load({{"generator", "i32", "[[625]]", 625, false, "mt19937", 4294967295}});
  std::vector<int32_t> generator(generatorElements);
  seedGenerator(4294967295, generator.data());
  EXPECT_EQ(state<int32_t>(0, 625), generator);
}
