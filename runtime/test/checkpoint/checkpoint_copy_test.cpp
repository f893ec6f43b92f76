// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Modules whose buckets are cut in another way take over each other's states,
// in a job of one rank: the call is not collective.

#include "checkpoint/checkpoint_test_util.h"

#include "base/status_test_util.h"

using namespace ddphook;
using namespace ddphook::test;

namespace {

/// The states of one bucket: a counter, a generator, errors of `gradients` with
/// as many elements, and factors of the first of them.
std::vector<TestState> bucket(const std::vector<std::string> &gradients,
                              const std::vector<int64_t> &elements) {
  std::string together, lists, shapes;
  int64_t sum = 0;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const std::string comma = i == 0 ? "" : ",";
    together += comma + '"' + gradients[i] + '"';
    lists += comma + "[\"" + gradients[i] + "\"]";
    shapes += comma + "[" + std::to_string(elements[i]) + "]";
    sum += elements[i];
  }
  return {powersgdState("powersgd.iter", "i64", "[[]]", 1, "iter",
                        "[[" + together + "]]"),
          powersgdState("powersgd.generator", "i32", "[[625]]", 625,
                        "generator", "[[" + together + "]]"),
          powersgdState("b0.error", "f32", "[" + shapes + "]", sum, "error",
                        "[" + lists + "]"),
          powersgdState("b0.q", "f32", "[[3,2]]", 6, "q",
                        "[[\"" + gradients[0] + "\"]]")};
}

class CheckpointCopy : public testing::Test {
protected:
  void SetUp() override {
    ddphook_options_t options = jobOptions(0, 1, 0, "auto");
    ASSERT_EQ(ddphook_context_create(&options, &context), DDPHOOK_OK);
  }
  void TearDown() override { ddphook_context_destroy(context); }

  void load(StateModule &module) {
    ASSERT_EQ(ddphook_module_load(context, &module.compiled), DDPHOOK_OK)
        << ddphook_last_error();
  }

  static std::string copy(const std::vector<StateModule *> &from,
                          const std::vector<StateModule *> &to,
                          uint32_t flags = 0) {
    std::vector<const ddphook_compiled_module_t *> sources, destinations;
    for (StateModule *module : from)
      sources.push_back(&module->compiled);
    for (StateModule *module : to)
      destinations.push_back(&module->compiled);
    ddphook_state_info_t info = {};
    info.struct_size = sizeof(info);
    const ddphook_status_t status =
        ddphook_state_copy(sources.data(), sources.size(), destinations.data(),
                           destinations.size(), flags, &info);
    return status == DDPHOOK_OK
               ? "loaded " + std::to_string(info.loaded) + ", kept " +
                     std::to_string(info.kept) + ", missing " +
                     std::to_string(info.missing) + ", dropped " +
                     std::to_string(info.dropped) + "\n" + info.report
               : show(status);
  }

  /// The floats of state `number`.
  static std::vector<float> floats(StateModule &module, size_t number) {
    std::vector<float> result;
    module.forEachState([&](size_t i, const char *memory, size_t size) {
      if (i != number)
        return;
      result.resize(size / sizeof(float));
      std::memcpy(result.data(), memory, size);
    });
    return result;
  }

  static std::string bytesOf(StateModule &module, size_t number) {
    std::string result;
    module.forEachState([&](size_t i, const char *memory, size_t size) {
      if (i == number)
        result.assign(memory, size);
    });
    return result;
  }

  static void setFloats(StateModule &module, size_t number,
                        const std::vector<float> &values) {
    module.forEachState([&](size_t i, char *memory, size_t size) {
      if (i == number) {
        ASSERT_EQ(size, values.size() * sizeof(float));
        std::memcpy(memory, values.data(), size);
      }
    });
  }

  static void setCounter(StateModule &module, int64_t value) {
    module.forEachState([&](size_t i, char *memory, size_t) {
      if (i == 0)
        std::memcpy(memory, &value, sizeof(value));
    });
  }

  static int64_t counter(StateModule &module) {
    int64_t value = 0;
    std::memcpy(&value, bytesOf(module, 0).data(), sizeof(value));
    return value;
  }

  ddphook_context_t *context = nullptr;
};

} // namespace

TEST_F(CheckpointCopy, otherBuckets) {
  StateModule ab(0, bucket({"a", "b"}, {2, 3})), c(0, bucket({"c"}, {1}));
  StateModule ca(0, bucket({"c", "a"}, {1, 2})), b(0, bucket({"b"}, {3}));
  for (StateModule *module : {&ab, &c, &ca, &b})
    load(*module);
  ab.fill(1);
  c.fill(2);
  setFloats(ab, 2, {1, 2, 3, 4, 5});
  setFloats(c, 2, {6});
  setCounter(ab, 7);
  setCounter(c, 7);
  // Generators are equal in a program; `fill` makes them differ.
  expectContains(copy({&ab, &c}, {&ca, &b}, DDPHOOK_STATE_PARTIAL),
                 "PLAN_MISMATCH: the source does not fit the destination: the "
                 "module has one state 'powersgd.generator' for gradients 'c' "
                 "and 'a', but their saved values differ: ");
  c.fill(1);
  setFloats(c, 2, {6});
  setCounter(c, 7);
  // Factors of `a` and `b` moved with their first gradients.
  EXPECT_EQ(copy({&ab, &c}, {&ca, &b}, DDPHOOK_STATE_PARTIAL),
            "loaded 7, kept 1, missing 1, dropped 1\n"
            "state 'b0.q' is unchanged\n");
  EXPECT_EQ(floats(ca, 2), std::vector<float>({6, 1, 2}));
  EXPECT_EQ(floats(b, 2), std::vector<float>({3, 4, 5}));
  EXPECT_EQ(bytesOf(ca, 3), bytesOf(c, 3));
  EXPECT_EQ(bytesOf(ca, 1), bytesOf(ab, 1));
  EXPECT_EQ(counter(ca), 7);
  EXPECT_EQ(counter(b), 7);
}

TEST_F(CheckpointCopy, refusesWhatDoesNotFit) {
  StateModule a(0, bucket({"a"}, {2})), b(0, bucket({"b"}, {2}));
  StateModule wide(0, bucket({"a"}, {3}));
  for (StateModule *module : {&a, &b, &wide}) {
    load(*module);
    module->fill(3);
  }
  const std::string before = wide.describe();
  expectContains(copy({&a}, {&b}), "PLAN_MISMATCH: the source does not fit the "
                                   "destination: it has no state");
  expectContains(copy({&a, &b}, {&wide}), "PLAN_MISMATCH");
  // A part that has another shape is left as it is.
  setCounter(a, 5);
  EXPECT_EQ(copy({&a}, {&wide}, DDPHOOK_STATE_PARTIAL),
            "loaded 3, kept 1, missing 1, dropped 1\n"
            "state 'b0.error' is unchanged\n");
  EXPECT_EQ(counter(wide), 5);
  setCounter(wide, counter(b));
  EXPECT_EQ(wide.describe(), before);
}

TEST_F(CheckpointCopy, badCalls) {
  StateModule a(0, bucket({"a"}, {2})), sameGradient(0, bucket({"a"}, {2}));
  StateModule unloaded(0, bucket({"b"}, {2}));
  load(a);
  load(sameGradient);
  expectContains(copy({&a}, {}), "INVALID_ARGUMENT: expected a module to copy "
                                 "to, but got none");
  expectContains(copy({&a}, {&a}),
                 "expected different modules as source and destination");
  expectContains(copy({&unloaded}, {&a}),
                 "FAILED_PRECONDITION: the module is not loaded");
  expectContains(copy({}, {&a, &sameGradient}),
                 "expected modules for different gradients, but two of them "
                 "have a state 'powersgd.iter' of 'a'");
  expectContains(copy({&a}, {&sameGradient}, DDPHOOK_STATE_STRICT),
                 "expected no flags except DDPHOOK_STATE_PARTIAL");
  ASSERT_EQ(ddphook_rt_enter(a.handle, 0), DDPHOOK_OK);
  expectContains(copy({&a}, {&sameGradient}), "an entry point is running");
  ASSERT_EQ(ddphook_rt_leave(a.handle), DDPHOOK_OK);
  const ddphook_compiled_module_t *nothing = nullptr;
  expectContains(show(ddphook_state_copy(&nothing, 1, &nothing, 1, 0, nullptr)),
                 "INVALID_ARGUMENT: expected a module, but got a null pointer");
  expectContains(show(ddphook_state_copy(nullptr, 1, &nothing, 1, 0, nullptr)),
                 "expected a list of modules");

  ddphook_options_t options = jobOptions(0, 1, 0, "auto");
  ddphook_context_t *other = nullptr;
  ASSERT_EQ(ddphook_context_create(&options, &other), DDPHOOK_OK);
  ASSERT_EQ(ddphook_module_load(other, &unloaded.compiled), DDPHOOK_OK);
  expectContains(copy({&a}, {&unloaded}), "expected modules of one context");
  ddphook_context_destroy(other);
}
