// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where saved bytes go when buckets are others than those of the module that
// saved, what cannot be carried over, and descriptions of states.
// test/parity/test_carry_over.py does the same with compiled modules.

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_mapping.h"
#include "checkpoint/checkpoint_test_util.h"
#include "files/json.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>

using namespace ddphook;
using namespace ddphook::test;

namespace {

using Lists = std::vector<std::vector<std::string>>;

int64_t bytesOf(const PlanState &state) {
  int64_t bytes = 0;
  for (const Shape &shape : state.shapes) {
    int64_t size = stateDtypeSize(state.dtype);
    for (int64_t dim : shape)
      size *= dim;
    bytes += size;
  }
  return bytes;
}

PlanState makeState(std::string name, StateDtype dtype,
                    std::vector<Shape> shapes, std::string role,
                    Lists gradients, std::string method = "mean #h") {
  PlanState state;
  state.name = std::move(name);
  state.dtype = dtype;
  state.shapes = std::move(shapes);
  state.role = std::move(role);
  state.gradients = std::move(gradients);
  state.method = std::move(method);
  state.placement = state.role == "error" ? StatePlacement::PerRank
                                          : StatePlacement::Replicated;
  state.bytes = bytesOf(state);
  return state;
}

PlanState counter(std::string name, std::vector<std::string> gradients) {
  return makeState(std::move(name), StateDtype::I64, {{}}, "iter",
                   {std::move(gradients)}, "");
}

PlanState errors(std::string bucket, std::vector<Shape> shapes,
                 Lists gradients) {
  return makeState(std::move(bucket) + ".error", StateDtype::F32,
                   std::move(shapes), "error", std::move(gradients));
}

/// What mapStates() says, "OK" when it carries everything over.
std::string map(const std::vector<PlanState> &saved,
                const std::vector<PlanState> &states) {
  CheckpointMapping mapping;
  Status status = mapStates(saved, states, /*isPartial=*/false, &mapping);
  return status.isOk() ? "OK"
                       : std::string(ddphook_status_name(status.code())) +
                             ": " + status.message();
}

std::string mismatch(const std::string &text) {
  return "PLAN_MISMATCH: " + text;
}

} // namespace

TEST(Mapping, SameBucketsAreOneRunEach) {
  const std::vector<PlanState> states = {
      counter("iter", {"w", "b"}),
      errors("b0", {{30, 20}, {20}}, {{"w"}, {"b"}}),
      makeState("b0.q", StateDtype::F32, {{20, 2}}, "q", {{"w"}}),
      makeState("b1.q", StateDtype::F32, {}, "q", {}),
      makeState("plain", StateDtype::F64, {{3}, {4}}, "", {}, "")};
  CheckpointMapping mapping;
  ASSERT_TRUE(mapStates(states, states, false, &mapping).isOk());
  for (size_t i : {1, 2, 4}) {
    ASSERT_EQ(mapping.runs[i].size(), 1u) << i;
    EXPECT_EQ(mapping.runs[i][0].bytes, states[i].bytes);
    EXPECT_EQ(mapping.runs[i][0].state, i);
    EXPECT_EQ(mapping.runs[i][0].offset, 0);
  }
  EXPECT_TRUE(mapping.runs[3].empty());
  ASSERT_EQ(mapping.shared.at(0).size(), 1u);
  EXPECT_EQ(mapping.shared.at(0)[0].saved, 0u);
}

TEST(Mapping, BucketsThatSplitAndJoin) {
  const std::vector<PlanState> saved = {
      errors("b0", {{2}, {3}, {4}}, {{"a"}, {"b"}, {"c"}}),
      errors("b1", {{5}}, {{"d"}})};
  const std::vector<PlanState> states = {
      errors("b0", {{5}, {2}, {3}}, {{"d"}, {"a"}, {"b"}}),
      errors("b1", {{4}}, {{"c"}})};
  CheckpointMapping mapping;
  ASSERT_TRUE(mapStates(saved, states, false, &mapping).isOk());
  // a and b stay neighbours.
  ASSERT_EQ(mapping.runs[0].size(), 2u);
  EXPECT_EQ(mapping.runs[0][0].bytes, 20);
  EXPECT_EQ(mapping.runs[0][0].state, 0u);
  EXPECT_EQ(mapping.runs[0][0].offset, 20);
  EXPECT_EQ(mapping.runs[0][1].bytes, 16);
  EXPECT_EQ(mapping.runs[0][1].state, 1u);
  EXPECT_EQ(mapping.runs[0][1].offset, 0);
  ASSERT_EQ(mapping.runs[1].size(), 1u);
  EXPECT_EQ(mapping.runs[1][0].state, 0u);
  EXPECT_EQ(mapping.runs[1][0].offset, 0);
}

TEST(Mapping, WhatCannotBeCarriedOver) {
  const PlanState w = errors("b0", {{2, 3}}, {{"w"}});
  EXPECT_EQ(map({}, {w}), mismatch("it has no state 'error' of gradient 'w'"));
  EXPECT_EQ(map({w}, {}), mismatch("the module has no counterpart for its "
                                   "state 'error' of gradient 'w'"));
  EXPECT_EQ(map({}, {w, errors("b1", {{1}, {1}}, {{"x"}, {"y"}})}),
            mismatch("it has no state 'error' of gradient 'w' (and 2 more)"));
  PlanState other = w;
  other.dtype = StateDtype::F16;
  EXPECT_EQ(map({other}, {w}),
            mismatch("its state 'error' of gradient 'w' is f16 [2, 3], but "
                     "the module's is f32 [2, 3]"));
  EXPECT_EQ(map({errors("b0", {{3, 2}}, {{"w"}})}, {w}),
            mismatch("its state 'error' of gradient 'w' is f32 [3, 2], but "
                     "the module's is f32 [2, 3]"));
  other = w;
  other.method = "sum #h";
  EXPECT_EQ(map({other}, {w}),
            mismatch("its state 'error' of gradient 'w' was kept for 'sum #h', "
                     "but the module has 'mean #h'"));
  other = w;
  other.placement = StatePlacement::Replicated;
  EXPECT_EQ(map({other}, {w}), "OK");
  EXPECT_EQ(map({w}, {other}),
            mismatch("its state 'error' of gradient 'w' differs between ranks, "
                     "but the module's is the same on all ranks"));
  // One matrix of all gradients is not to be taken apart, nor put in order.
  const PlanState square = errors("b0", {{3, 3}}, {{"w", "b"}});
  EXPECT_EQ(map({square}, {square}), "OK");
  EXPECT_EQ(
      map({square}, {w}),
      mismatch(
          "its state 'error' of gradients 'w', 'b' is indivisible, and the "
          "module's covers other gradients: state 'error' of gradient 'w'"));
  EXPECT_EQ(map({square}, {errors("b0", {{3, 3}}, {{"b", "w"}})}),
            mismatch("its state 'error' of gradients 'w', 'b' is indivisible, "
                     "and the module's covers other gradients: state 'error' "
                     "of gradients 'b', 'w'"));
  // States of no gradient are found by their names.
  const PlanState own = makeState("own", StateDtype::F32, {{4}}, "", {}, "");
  PlanState renamed = own;
  renamed.name = "other";
  EXPECT_EQ(map({own}, {own}), "OK");
  EXPECT_EQ(map({own}, {renamed}), mismatch("it has no state 'other'"));
  // Generators that began with other seeds.
  PlanState generator =
      makeState("g", StateDtype::I32, {{625}}, "generator", {{"w"}}, "");
  PlanState seeded = generator;
  seeded.seed = 7;
  EXPECT_EQ(map({generator}, {generator}), "OK");
  EXPECT_EQ(map({generator}, {seeded}),
            mismatch("its state 'generator' of gradient 'w' was seeded with 0, "
                     "but the module's with 7"));
}

TEST(Mapping, PartsOnDemand) {
  const std::vector<PlanState> saved = {
      counter("iter", {"a", "b"}), errors("b0", {{2}, {3}}, {{"a"}, {"b"}})};
  const std::vector<PlanState> states = {
      counter("iter", {"b", "c"}), counter("iter.1", {"d"}),
      errors("b0", {{3}, {4}}, {{"b"}, {"c"}}), errors("b1", {{5}}, {{"d"}})};
  CheckpointMapping mapping;
  ASSERT_TRUE(mapStates(saved, states, /*isPartial=*/true, &mapping).isOk());
  EXPECT_EQ(mapping.missing.size(), 4u);
  EXPECT_EQ(mapping.dropped,
            std::vector<std::string>{"state 'error' of gradient 'a'"});
  EXPECT_EQ(mapping.lacksPart, (std::vector<bool>{true, true, true, true}));
  EXPECT_EQ(mapping.lacksAll, (std::vector<bool>{false, true, false, true}));
  ASSERT_EQ(mapping.runs[1].size(), 2u);
  EXPECT_FALSE(mapping.runs[1][0].state.has_value());
  EXPECT_EQ(mapping.runs[1][1].state, 2u);
}

TEST(States, DescriptionsAreReadBack) {
  std::vector<PlanState> states = {
      counter("iter", {"w", "b"}), errors("b0", {{2}, {3}}, {{"w"}, {"b"}}),
      makeState("g", StateDtype::I32, {{625}}, "generator", {{"w"}}, ""),
      makeState("odd \"name\"", StateDtype::BF16, {{0, 4}}, "", {}, "")};
  states[2].seed = UINT32_MAX;
  const std::string text = printStates(states);
  std::vector<PlanState> parsed;
  Status status = parseStates(text, &parsed);
  ASSERT_TRUE(status.isOk()) << status.message();
  EXPECT_EQ(printStates(parsed), text);
  ASSERT_EQ(parsed.size(), states.size());
  for (size_t i = 0; i < states.size(); ++i)
    EXPECT_EQ(parsed[i].bytes, states[i].bytes);
  EXPECT_EQ(parsed[3].offset, 8 + 20 + 2500);
}

TEST(States, TextsAreWrittenAsTheLibraryDoes) {
  std::mt19937 random(4712);
  for (int i = 0; i < 20000; ++i) {
    // All of ASCII, or mostly what needs no or little care; some letters of
    // two bytes.
    std::string text;
    for (size_t length = random() % 12; length > 0; --length)
      switch (random() % (i % 2 ? 3 : 30)) {
      case 0:
        text += static_cast<char>(random() % 128);
        break;
      case 1:
        text += "\"\\/\x7f"[random() % 4];
        break;
      case 2:
        text += i % 5 ? "w" : "é";
        break;
      default:
        text += static_cast<char>('a' + random() % 26);
      }
    std::string json = "[";
    appendJsonText(&json, text);
    EXPECT_EQ(json, "[" + nlohmann::json(text).dump());
  }
  std::string json;
  EXPECT_ANY_THROW(appendJsonText(&json, "\xff"));
}

TEST(States, BadDescriptions) {
  const std::string good =
      printStates({counter("iter", {"w"}), errors("b0", {{2}}, {{"w"}})});
  auto expectBad = [&](const std::string &from, const std::string &to,
                       const std::string &message) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    std::vector<PlanState> states;
    Status status = parseStates(text, &states);
    EXPECT_EQ(status.code(), DDPHOOK_DATA_LOSS);
    EXPECT_EQ(status.message().substr(0, message.size()), message)
        << status.message();
  };
  const std::string malformed = "malformed description of states: ";
  expectBad(good, "", malformed + "it is not JSON text");
  expectBad(good, good + '\0', malformed + "it is not JSON text");
  expectBad(good, "{}", malformed + "top level: expected a list, but got {}");
  expectBad(R"("role":"iter")", R"("role":"")",
            malformed + "[0].gradients: expected no gradients without a role");
  expectBad(R"([["w"]])", R"([["w"],["x"]])",
            malformed + "[0].gradients: expected one list");
  expectBad(R"([["w"]])", R"([[]])",
            malformed + "[0].gradients[0]: expected at least one name");
  expectBad(R"([["w"]])", R"([[""]])",
            malformed + "[0].gradients[0][0]: expected a nonempty name");
  expectBad(R"("role":"error")", R"("role":"iter")",
            malformed + "top level: expected one state of role 'iter' for "
                        "gradient 'w'");
  expectBad(R"([2])", R"([1152921504606846976])", malformed + "[1].shapes[0]");
  expectBad(R"("b0.error")", R"("iter")",
            malformed +
                "[1].name: expected a name that is not empty and not used");
  // Whatever is changed, nothing but an error or a good description.
  const unsigned seed = 4711;
  RecordProperty("seed", static_cast<int>(seed));
  std::mt19937 random(seed);
  for (int i = 0; i < 20000; ++i) {
    std::string text = good;
    for (unsigned change = 0; change <= random() % 3; ++change)
      text[random() % text.size()] = static_cast<char>(random());
    std::vector<PlanState> states;
    if (parseStates(text, &states).isOk()) {
      CheckpointMapping mapping;
      (void)mapStates(states, states, true, &mapping);
    }
  }
}

TEST(States, ProgramsAreTheSameWhateverTheirBuckets) {
  auto program = [](std::vector<PlanState> states) {
    return hashProgram(states);
  };
  const uint64_t one = program(
      {counter("iter", {"a", "b"}), errors("b0", {{2}, {3}}, {{"a"}, {"b"}})});
  EXPECT_EQ(one, program({counter("iter", {"b"}), counter("iter.1", {"a"}),
                          errors("b0", {{3}}, {{"b"}}),
                          errors("b1", {{2}}, {{"a"}})}));
  EXPECT_NE(one, program({counter("iter", {"a", "b"}),
                          errors("b0", {{2}, {3}}, {{"a"}, {"c"}})}));
  EXPECT_NE(one, program({counter("iter", {"a", "b"}),
                          errors("b0", {{2}}, {{"a"}})}));
  PlanState other = errors("b0", {{2}, {3}}, {{"a"}, {"b"}});
  other.method = "sum #h";
  EXPECT_NE(one, program({counter("iter", {"a", "b"}), other}));
}

namespace {

struct Gradient {
  std::string name;
  int64_t rows, columns;
  bool isHalf, isCompressed;
};

/// A model whose gradients are put into buckets at random.
class RandomModel {
public:
  explicit RandomModel(std::mt19937 &random) : random(random) {
    const size_t count = 1 + random() % 9;
    for (size_t i = 0; i < count; ++i)
      gradients.push_back({"layer" + std::to_string(i),
                           1 + int64_t(random() % 7), 1 + int64_t(random() % 9),
                           random() % 4 == 0, random() % 3 != 0});
  }

  /// The states of PowerSGD for one partition.
  std::vector<TestState> states() {
    std::shuffle(gradients.begin(), gradients.end(), random);
    std::vector<std::vector<Gradient>> buckets;
    for (const Gradient &gradient : gradients) {
      if (buckets.empty() || random() % 2 ||
          buckets.back()[0].isHalf != gradient.isHalf)
        buckets.emplace_back();
      buckets.back().push_back(gradient);
    }
    std::vector<TestState> result = {
        powersgdState("powersgd.iter", "i64", "[[]]", 1, "iter", names()),
        powersgdState("powersgd.generator", "i32", "[[625]]", 625, "generator",
                      names())};
    for (size_t i = 0; i < buckets.size(); ++i) {
      nlohmann::json shapes[2] = {nlohmann::json::array(),
                                  nlohmann::json::array()};
      nlohmann::json lists[2] = {shapes[0], shapes[0]};
      int64_t elements[2] = {0, 0};
      for (const Gradient &gradient : buckets[i])
        for (int part : {0, 1}) {
          if (part == 1 && !gradient.isCompressed)
            continue;
          const int64_t columns = part == 0 ? gradient.columns : 1;
          shapes[part].push_back({gradient.rows, columns});
          lists[part].push_back({gradient.name});
          elements[part] += gradient.rows * columns;
        }
      const std::string bucket = "b" + std::to_string(i);
      const std::string dtype = buckets[i][0].isHalf ? "bf16" : "f32";
      result.push_back(powersgdState(bucket + ".error", dtype, shapes[0].dump(),
                                     elements[0], "error", lists[0].dump()));
      result.push_back(powersgdState(bucket + ".q", dtype, shapes[1].dump(),
                                     elements[1], "q", lists[1].dump()));
    }
    return result;
  }

private:
  std::string names() const {
    nlohmann::json list = nlohmann::json::array();
    for (const Gradient &gradient : gradients)
      list.push_back(gradient.name);
    return nlohmann::json::array({list}).dump();
  }

  std::mt19937 &random;
  std::vector<Gradient> gradients;
};

/// The bytes of a state whose pieces know what they belong to, whatever state
/// they are in.
std::string pieceBytes(const TestState &state, int rank, unsigned salt) {
  if (state.dtype[0] == 'i') {
    std::string bytes(static_cast<size_t>(state.bytes()), '\0');
    if (state.init == "mt19937")
      seedGenerator(salt, reinterpret_cast<int32_t *>(bytes.data()));
    else
      bytes[0] = static_cast<char>(salt);
    return bytes;
  }
  const auto shapes = nlohmann::json::parse(state.shapes);
  const auto lists = nlohmann::json::parse(state.gradients);
  const size_t width = state.dtype == "f32" ? 4 : 2;
  std::string bytes;
  for (size_t i = 0; i < lists.size(); ++i) {
    std::mt19937 random(static_cast<unsigned>(
        std::hash<std::string>()(state.role + lists[i].dump()) + salt * 7919 +
        (state.isPerRank ? 1 + unsigned(rank) : 0)));
    const size_t count =
        shapes[i][0].get<size_t>() * shapes[i][1].get<size_t>() * width;
    for (size_t byte = 0; byte < count; ++byte)
      bytes += static_cast<char>(random());
  }
  return bytes;
}

} // namespace

/// Every byte of every state of every gradient arrives, bit by bit, however
/// buckets were cut on both sides, on every rank.
TEST(CarryOver, RandomBuckets) {
  const unsigned seed = 20262;
  RecordProperty("seed", static_cast<int>(seed));
  TemporaryDirectory directory;
  const std::string pattern = directory.path("s.{rank}");
  for (int world : {1, 3})
    EXPECT_EQ(
        runJob(world,
               [&](StateModule &base) -> std::string {
                 std::mt19937 random(seed + unsigned(world));
                 ddphook_context_t *context = base.contextHandle();
                 const int rank = base.rankNumber();
                 for (unsigned round = 0; round < 40; ++round) {
                   RandomModel model(random);
                   StateModule from(rank, model.states());
                   StateModule to(rank, model.states());
                   if (ddphook_module_load(context, &from.compiled) ||
                       ddphook_module_load(context, &to.compiled))
                     return show(DDPHOOK_INTERNAL);
                   from.forEachState([&](size_t i, char *memory, size_t size) {
                     std::memcpy(memory,
                                 pieceBytes(from.states[i], rank, round).data(),
                                 size);
                   });
                   to.fill(9999);
                   ddphook_state_info_t info = {};
                   info.struct_size = sizeof(info);
                   std::string status =
                       show(ddphook_state_save(&from.compiled, pattern.c_str(),
                                               DDPHOOK_STATE_REPLACE)) +
                       show(ddphook_state_load(&to.compiled, pattern.c_str(),
                                               DDPHOOK_STATE_STRICT, &info));
                   bool isSame = size_t(info.loaded) == to.states.size();
                   to.forEachState([&](size_t i, char *memory, size_t size) {
                     isSame &= std::string(memory, size) ==
                               pieceBytes(to.states[i], rank, round);
                   });
                   (void)ddphook_module_unload(&from.compiled);
                   (void)ddphook_module_unload(&to.compiled);
                   if (status != "OKOK" || !isSame)
                     return "round " + std::to_string(round) + ": " + status;
                 }
                 return "all";
               }),
        std::vector<std::string>(size_t(world), "all"));
}

/// Counters that come together must be equal.
TEST(CarryOver, CountersThatDisagree) {
  TemporaryDirectory directory;
  const std::string pattern = directory.path("s");
  const TestState w =
      powersgdState("powersgd.iter", "i64", "[[]]", 1, "iter", R"([["w"]])");
  const TestState v =
      powersgdState("powersgd.iter.1", "i64", "[[]]", 1, "iter", R"([["v"]])");
  auto run = [&](std::vector<int64_t> counts) {
    return runJob(1, [&](StateModule &base) {
      StateModule two(0, {w, v});
      StateModule one(0, {powersgdState("powersgd.iter", "i64", "[[]]", 1,
                                        "iter", R"([["v","w"]])")});
      (void)ddphook_module_load(base.contextHandle(), &two.compiled);
      (void)ddphook_module_load(base.contextHandle(), &one.compiled);
      two.forEachState([&](size_t i, char *memory, size_t size) {
        std::memcpy(memory, &counts[i], size);
      });
      std::string text =
          show(ddphook_state_save(&two.compiled, pattern.c_str(),
                                  DDPHOOK_STATE_REPLACE)) +
          " " +
          show(ddphook_state_load(&one.compiled, pattern.c_str(), 0, nullptr));
      one.forEachState([&](size_t, char *memory, size_t) {
        text += " " + std::to_string(*reinterpret_cast<int64_t *>(memory));
      });
      (void)ddphook_module_unload(&one.compiled);
      (void)ddphook_module_unload(&two.compiled);
      return text;
    })[0];
  };
  EXPECT_EQ(run({6, 6}), "OK OK 6");
  EXPECT_EQ(
      run({6, 5}),
      "OK PLAN_MISMATCH: the checkpoint of '" + pattern +
          ".manifest.json' belongs to another plan, and does not fit this one: "
          "the module has one state 'powersgd.iter' for gradients 'v' and 'w', "
          "but their saved values differ: 5 and 6 0");
}

/// What is new begins as in a new job, what is gone is dropped.
TEST(CarryOver, PartsOnDemand) {
  TemporaryDirectory directory;
  const std::string pattern = directory.path("s");
  const std::string both = R"([["w","v"]])";
  EXPECT_EQ(
      runJob(
          1,
          [&](StateModule &base) -> std::string {
            StateModule from(
                0, {powersgdState("b0.error", "f32", "[[2,1],[3,1]]", 5,
                                  "error", R"([["w"],["gone"]])")});
            StateModule to(0, {powersgdState("powersgd.generator", "i32",
                                             "[[625]]", 625, "generator", both),
                               powersgdState("b0.error", "f32", "[[4,1],[2,1]]",
                                             6, "error", R"([["v"],["w"]])"),
                               powersgdState("b0.q", "f32", "[[3,1]]", 3, "q",
                                             R"([["v"]])")});
            (void)ddphook_module_load(base.contextHandle(), &from.compiled);
            (void)ddphook_module_load(base.contextHandle(), &to.compiled);
            std::vector<std::string> first;
            to.forEachState([&](size_t, char *memory, size_t size) {
              first.emplace_back(memory, size);
            });
            from.forEachState([&](size_t i, char *memory, size_t size) {
              std::memcpy(memory, pieceBytes(from.states[i], 0, 3).data(),
                          size);
            });
            to.fill(9999);
            ddphook_state_info_t info = {};
            info.struct_size = sizeof(info);
            std::string text =
                show(ddphook_state_save(&from.compiled, pattern.c_str(), 0)) +
                show(ddphook_state_load(&to.compiled, pattern.c_str(),
                                        DDPHOOK_STATE_PARTIAL, &info)) +
                " " + std::to_string(info.loaded) +
                std::to_string(info.zeroed) + std::to_string(info.missing) +
                std::to_string(info.dropped);
            to.forEachState([&](size_t i, char *memory, size_t size) {
              std::string expected = first[i];
              if (i == 1)
                expected = std::string(16, '\0') +
                           pieceBytes(from.states[0], 0, 3).substr(0, 8);
              text +=
                  std::string(memory, size) == expected ? " same" : " other";
            });
            (void)ddphook_module_unload(&from.compiled);
            (void)ddphook_module_unload(&to.compiled);
            return text;
          })[0],
      "OKOK 1241 same same same");
}
