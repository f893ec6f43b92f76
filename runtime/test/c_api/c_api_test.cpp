// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Wrong calls, module life cycle, states, kernels and backends by name: all
// that needs no second rank.

#include "base/flush_to_zero.h"
#include "base/random.h"
#include "ddphook/runtime/backend.h"
#include "job/job_test_util.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <thread>

using namespace ddphook;
using namespace ddphook::test;

namespace {

class CApi : public testing::Test {
protected:
  void SetUp() override {
    ASSERT_EQ(show(ddphook_context_create(nullptr, &context)), "OK");
  }
  void TearDown() override { ddphook_context_destroy(context); }

  std::string loadText(TestModule &module) {
    return show(ddphook_module_load(context, &module.compiled));
  }

  ddphook_context_t *context = nullptr;
};

std::string replaced(const std::string &from, const std::string &to,
                     std::string text) {
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string createWith(const char *backend, const char *transport = nullptr) {
  ddphook_options_t options = {};
  options.struct_size = sizeof(options);
  options.backend = backend;
  options.transport = transport;
  ddphook_context_t *context = nullptr;
  std::string result = show(ddphook_context_create(&options, &context));
  ddphook_context_destroy(context);
  return result;
}

} // namespace

TEST(Status, Names) {
  EXPECT_STREQ(ddphook_status_name(DDPHOOK_OK), "OK");
  EXPECT_STREQ(ddphook_status_name(DDPHOOK_PEER_LOST), "PEER_LOST");
  EXPECT_STREQ(ddphook_status_name(DDPHOOK_INTERNAL), "INTERNAL");
  EXPECT_STREQ(ddphook_status_name(static_cast<ddphook_status_t>(77)),
               "UNKNOWN");
}

TEST(Status, LastErrorBelongsToTheThread) {
  EXPECT_EQ(ddphook_barrier(nullptr), DDPHOOK_INVALID_ARGUMENT);
  EXPECT_STREQ(ddphook_last_error(),
               "expected a context, but got a null pointer");
  std::thread([] { EXPECT_STREQ(ddphook_last_error(), ""); }).join();
}

TEST_F(CApi, WorldOfOne) {
  EXPECT_EQ(ddphook_context_rank(context), 0);
  EXPECT_EQ(ddphook_context_world_size(context), 1);
  EXPECT_EQ(show(ddphook_barrier(context)), "OK");
  char data[3] = {1, 2, 3};
  EXPECT_EQ(show(ddphook_broadcast(context, data, 3, 0)), "OK");
  EXPECT_EQ(data[2], 3);
  EXPECT_EQ(show(ddphook_broadcast(context, nullptr, 0, 0)), "OK");
  EXPECT_EQ(show(ddphook_broadcast(context, nullptr, 1, 0)),
            "INVALID_ARGUMENT: expected data, but got a null pointer");
  EXPECT_EQ(show(ddphook_broadcast(context, data, 3, 1)),
            "INVALID_ARGUMENT: ddphook_broadcast: expected a root from 0 to 0, "
            "but got 1");
}

TEST_F(CApi, NullPointers) {
  EXPECT_EQ(ddphook_context_create(nullptr, nullptr), DDPHOOK_INVALID_ARGUMENT);
  ddphook_context_destroy(nullptr);
  EXPECT_EQ(ddphook_context_rank(nullptr), 0);
  EXPECT_EQ(ddphook_context_world_size(nullptr), 0);
  EXPECT_EQ(ddphook_module_load(nullptr, nullptr), DDPHOOK_INVALID_ARGUMENT);
  EXPECT_EQ(ddphook_module_load(context, nullptr), DDPHOOK_INVALID_ARGUMENT);
  EXPECT_EQ(ddphook_module_unload(nullptr), DDPHOOK_INVALID_ARGUMENT);
  EXPECT_EQ(ddphook_module_stats(nullptr, nullptr), DDPHOOK_INVALID_ARGUMENT);
  EXPECT_EQ(show(ddphook_rt_enter(nullptr, 0)),
            "FAILED_PRECONDITION: the module is not loaded");
  EXPECT_EQ(ddphook_rt_leave(nullptr), DDPHOOK_FAILED_PRECONDITION);
  EXPECT_EQ(ddphook_rt_arena(nullptr), nullptr);
  EXPECT_EQ(ddphook_rt_state(nullptr, 0), nullptr);
  ddphook_rt_collective(nullptr, 0, nullptr, nullptr, /*step=*/0);
  EXPECT_EQ(
      ddphook_rt_collective_start(nullptr, 0, nullptr, nullptr, /*step=*/0), 0);
  ddphook_rt_wait(nullptr, 1);
  ddphook_rt_cast(nullptr, nullptr, 0, nullptr, 0, 1);
  ddphook_rt_divide_by_group_size(nullptr, 0, nullptr, nullptr, 1, 0);
  ddphook_rt_scale(nullptr, 1, nullptr, nullptr, 1, 0);
}

TEST(Random, FirstValuesAreTheThirdOfAGenerator) {
  int32_t generator[generatorElements];
  seedGenerator(7, generator);
  const int64_t draws[] = {3, 40};
  float want[43] = {}, got[43] = {};
  for (int i = 0; i < 3; ++i)
    ASSERT_EQ(drawNormal(generator, draws, 2, want, Dtype::F32).code(),
              DDPHOOK_OK);
  EXPECT_EQ(ddphook_draw_normal(7, 2, draws, 2, got, DDPHOOK_F32), DDPHOOK_OK);
  EXPECT_EQ(std::memcmp(got, want, sizeof(want)), 0);
  EXPECT_EQ(show(ddphook_draw_normal(7, 0, draws, 2, got, 99)),
            "INVALID_ARGUMENT: expected a floating-point type, but got 99");
  EXPECT_EQ(show(ddphook_draw_normal(7, 0, draws, 2, nullptr, DDPHOOK_F32)),
            "INVALID_ARGUMENT: expected draws and an array, but got a null "
            "pointer");
}

TEST_F(CApi, LoadAndUnload) {
  TestModule module(Collectives{{4}});
  ddphook_stats_t stats = {};
  stats.struct_size = sizeof(stats);
  EXPECT_EQ(ddphook_module_unload(&module.compiled),
            DDPHOOK_FAILED_PRECONDITION);
  EXPECT_EQ(ddphook_module_stats(&module.compiled, &stats),
            DDPHOOK_FAILED_PRECONDITION);
  for (int round = 0; round < 2; ++round) {
    ASSERT_EQ(loadText(module), "OK");
    EXPECT_NE(module.handle, nullptr);
    EXPECT_EQ(loadText(module),
              "FAILED_PRECONDITION: the module is loaded already");
    EXPECT_EQ(show(ddphook_module_unload(&module.compiled)), "OK");
    EXPECT_EQ(module.handle, nullptr);
  }
  TestModule other(Collectives{{5}});
  ASSERT_EQ(loadText(module), "OK");
  ASSERT_EQ(loadText(other), "OK");
  EXPECT_EQ(show(ddphook_module_unload(&module.compiled)), "OK");
  EXPECT_NE(other.handle, nullptr);
  ddphook_context_destroy(context);
  context = nullptr;
  EXPECT_EQ(other.handle, nullptr);
}

TEST_F(CApi, MalformedModules) {
  auto load = [&](auto change) {
    TestModule module(Collectives{{4}});
    change(module);
    std::string text = loadText(module);
    EXPECT_EQ(module.handle, nullptr);
    return text;
  };
  using Module = TestModule;
  const std::string version = std::to_string(DDPHOOK_ABI_VERSION);
  EXPECT_EQ(load([](Module &m) { ++m.compiled.abi_version; }),
            "UNSUPPORTED: expected a module compiled for ABI version " +
                version + ", but got version " +
                std::to_string(DDPHOOK_ABI_VERSION + 1) + " of 72 bytes");
  EXPECT_EQ(load([](Module &m) { m.compiled.struct_size = 8; }),
            "UNSUPPORTED: expected a module compiled for ABI version " +
                version + ", but got version " + version + " of 8 bytes");
  EXPECT_EQ(load([](Module &m) { m.compiled.plan = nullptr; }),
            "DATA_LOSS: the module lacks its plan, its handle or its entry "
            "points");
  EXPECT_EQ(load([](Module &m) { m.compiled.handle = nullptr; }),
            "DATA_LOSS: the module lacks its plan, its handle or its entry "
            "points");
  EXPECT_EQ(load([](Module &m) { m.compiled.entries = nullptr; }),
            "DATA_LOSS: the module lacks its plan, its handle or its entry "
            "points");
  EXPECT_EQ(load([](Module &m) { m.compiled.entry_count = 0; }),
            "DATA_LOSS: expected the plan's 1 entry points, but got 0");
  EXPECT_EQ(load([](Module &m) { m.entry.name = "stop"; }),
            "DATA_LOSS: expected entry point 0 to be 'step', but got 'stop'");
  EXPECT_EQ(load([](Module &m) { m.entry.name = nullptr; }),
            "DATA_LOSS: expected entry point 0 to be 'step', but got "
            "'nothing'");
  EXPECT_EQ(load([](Module &m) { m.entry.invoke = nullptr; }),
            "DATA_LOSS: expected entry point 0 to be 'step', but got 'step'");
  EXPECT_EQ(load([](Module &m) {
              m.compiled.plan_size -= 1;
            }).find("DATA_LOSS: expected a plan with the hash "),
            0u);
  EXPECT_EQ(load([](Module &m) { m.setPlan("{}"); }),
            "DATA_LOSS: malformed plan: it has no ABI version");
  EXPECT_EQ(load([](Module &m) {
              m.setPlan(replaced(R"("abi":10)", R"("abi":1)", m.plan));
            }),
            "UNSUPPORTED: expected a plan for ABI version " + version +
                ", but got one for 1");
  EXPECT_EQ(load([](Module &m) {
              m.setPlan(replaced(R"("arena":{"bytes":0)",
                                 R"("arena":{"bytes":140737488355328)",
                                 m.plan));
            }).find("RESOURCE_EXHAUSTED: expected to allocate at most"),
            0u);
}

static const char *statesPlan =
    R"("states":[{"name":"a","dtype":"f32","shapes":[[3]],)"
    R"("role":"","gradients":[],"method":"",)"
    R"("placement":"per_rank","init":"zero","seed":0,"generator":"","draws":[],"offset":0,"bytes":12},)"
    R"({"name":"b","dtype":"f64","shapes":[[2]],"role":"","gradients":[],)"
    R"("method":"","placement":"replicated",)"
    R"("init":"zero","seed":0,"generator":"","draws":[],"offset":64,"bytes":16}])";

TEST_F(CApi, States) {
  TestModule module;
  std::string plan = replaced(R"("states":[])", statesPlan, module.plan);
  plan = replaced(R"("state_arena":{"bytes":0)", R"("state_arena":{"bytes":80)",
                  plan);
  module.setPlan(plan);
  ASSERT_EQ(loadText(module), "OK");
  ASSERT_EQ(show(ddphook_rt_enter(module.handle, 0)), "OK");
  auto *a = static_cast<float *>(ddphook_rt_state(module.handle, 0));
  auto *b = static_cast<double *>(ddphook_rt_state(module.handle, 1));
  EXPECT_EQ(reinterpret_cast<char *>(b) - reinterpret_cast<char *>(a), 64);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 64, 0u);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(a[i], 0.0f);
  a[2] = 7;
  ASSERT_EQ(show(ddphook_rt_leave(module.handle)), "OK");
  ASSERT_EQ(show(ddphook_rt_enter(module.handle, 0)), "OK");
  EXPECT_EQ(static_cast<float *>(ddphook_rt_state(module.handle, 0))[2], 7.0f);
  EXPECT_EQ(ddphook_rt_state(module.handle, 2), nullptr);
  EXPECT_EQ(show(ddphook_rt_leave(module.handle)),
            "INVALID_ARGUMENT: ddphook_rt_state: expected one of 2 states, but "
            "got 2");
}

TEST_F(CApi, Kernels) {
  TestModule module(Collectives{{4, "f32", "bf16"}, {0, "f32", "f16"}});
  ASSERT_EQ(loadText(module), "OK");
  float in[4] = {1.0f, -2.5f, 1.00390625f, NAN}, out[4] = {9, 9, 9, 9};
  uint16_t half[4] = {0xdead, 0xdead, 0xdead, 0xdead};
  ASSERT_EQ(show(ddphook_rt_enter(module.handle, 0)), "OK");
  ddphook_rt_cast(module.handle, in, DDPHOOK_F32, half, DDPHOOK_F16, 2);
  EXPECT_EQ(half[0], 0x3c00);
  EXPECT_EQ(half[1], 0xc100);
  EXPECT_EQ(half[2], 0xdead);
  ddphook_rt_scale(module.handle, 0.5, in, out, 2, DDPHOOK_F32);
  EXPECT_EQ(out[1], -1.25f);
  EXPECT_EQ(out[2], 9.0f);
  ddphook_rt_divide_by_group_size(module.handle, 0, in, out, 4, DDPHOOK_F32);
  EXPECT_EQ(out[1], -2.5f);
  // Alone, too, an all-reduce rounds to its wire type: a tie, to even.
  ddphook_rt_collective(module.handle, 0, in, in, /*step=*/0);
  EXPECT_EQ(in[1], -2.5f);
  EXPECT_EQ(in[2], 1.0f);
  EXPECT_TRUE(std::isnan(in[3]));
  ddphook_rt_collective(module.handle, 1, nullptr, nullptr, /*step=*/0);
  ddphook_rt_cast(module.handle, nullptr, DDPHOOK_F32, nullptr, DDPHOOK_F16, 0);
  EXPECT_EQ(show(ddphook_rt_leave(module.handle)), "OK");
}

TEST_F(CApi, FlushToZeroIsUndoneAndRestored) {
  TestModule module(Collectives{{1, "f32", "bf16"}});
  ASSERT_EQ(loadText(module), "OK");
  uint32_t tiny = 0x00010000, got = 0xffffffff; // a subnormal
  std::string entered, left;
  uint32_t scaled;
  bool isOn;
  {
    const FlushToZero flushing;
    entered = show(ddphook_rt_enter(module.handle, 0));
    ddphook_rt_scale(module.handle, 1.0, &tiny, &got, 1, DDPHOOK_F32);
    scaled = got;
    ddphook_rt_collective(module.handle, 0, &tiny, &got, /*step=*/0);
    isOn = FlushToZero::isOn();
    left = show(ddphook_rt_leave(module.handle));
  }
  EXPECT_EQ(entered, "OK");
  EXPECT_EQ(left, "OK");
  EXPECT_EQ(scaled, tiny);
  EXPECT_EQ(got, tiny);
  EXPECT_TRUE(isOn);
}

TEST_F(CApi, AnotherKindOfCollective) {
  float data[8] = {};
  auto stepWith = [&](auto call) {
    ddphook_context_t *own = nullptr;
    EXPECT_EQ(show(ddphook_context_create(nullptr, &own)), "OK");
    TestModule module(
        Collectives{TestCollective{4}.as("all_gather")}, 0,
        R"([{"name":"dp","size":1,"ranks":[],"placement":"","parent":"","topology":"flat"}])");
    EXPECT_EQ(show(ddphook_module_load(own, &module.compiled)), "OK");
    EXPECT_EQ(show(ddphook_rt_enter(module.handle, 0)), "OK");
    call(module.handle);
    std::string text = show(ddphook_rt_leave(module.handle));
    ddphook_context_destroy(own);
    return text;
  };
  using Handle = ddphook_module_t *;
  EXPECT_EQ(stepWith([&](Handle m) {
              ddphook_rt_collective(m, 0, data, data + 4, /*step=*/0);
            }),
            "OK");
  for (int distance : {0, 1, 3})
    EXPECT_EQ(stepWith([&](Handle m) {
                ddphook_rt_collective(m, 0, data, data + distance, /*step=*/0);
              }),
              "INVALID_ARGUMENT: ddphook_rt_collective: expected 'out' not to "
              "overlap 'in', but it does");
}

TEST_F(CApi, WrongCallsInAStep) {
  float data[4] = {}, shared[16] = {};
  auto stepWith = [&](auto call) {
    // A failed step is the end of a context, so each has its own.
    ddphook_context_t *own = nullptr;
    EXPECT_EQ(show(ddphook_context_create(nullptr, &own)), "OK");
    TestModule module(Collectives{{4}});
    EXPECT_EQ(show(ddphook_module_load(own, &module.compiled)), "OK");
    EXPECT_EQ(show(ddphook_rt_enter(module.handle, 0)), "OK");
    call(module.handle);
    float untouched[4] = {5, 5, 5, 5};
    ddphook_rt_scale(module.handle, 2, untouched, untouched, 4, DDPHOOK_F32);
    EXPECT_EQ(untouched[0], 5.0f) << "a call after a failure ran";
    std::string text = show(ddphook_rt_leave(module.handle));
    // It stays.
    EXPECT_EQ(show(ddphook_rt_enter(module.handle, 0)), text);
    EXPECT_EQ(show(ddphook_barrier(own)), text);
    TestModule second;
    EXPECT_EQ(show(ddphook_module_load(own, &second.compiled)), text);
    ddphook_stats_t stats = {};
    stats.struct_size = sizeof(stats);
    EXPECT_EQ(show(ddphook_module_stats(&module.compiled, &stats)), "OK");
    EXPECT_EQ(stats.steps, 0u);
    ddphook_context_destroy(own);
    return text;
  };
  using Handle = ddphook_module_t *;
  EXPECT_EQ(
      stepWith([&](Handle m) {
        ddphook_rt_collective(m, 1, data, data, /*step=*/0);
      }),
      "INVALID_ARGUMENT: ddphook_rt_collective: expected one of 1 collectives, "
      "but got 1");
  EXPECT_EQ(
      stepWith([&](Handle m) {
        ddphook_rt_collective(m, -1, data, data, /*step=*/0);
      }),
      "INVALID_ARGUMENT: ddphook_rt_collective: expected one of 1 collectives, "
      "but got -1");
  EXPECT_EQ(
      stepWith([&](Handle m) {
        ddphook_rt_collective(m, 0, nullptr, data, /*step=*/0);
      }),
      "INVALID_ARGUMENT: ddphook_rt_collective: expected an array 'in', but "
      "got "
      "a null pointer");
  for (int distance : {-3, -1, 1, 3})
    EXPECT_EQ(
        stepWith([&](Handle m) {
          ddphook_rt_collective(m, 0, shared + 3, shared + 3 + distance,
                                /*step=*/0);
        }),
        "INVALID_ARGUMENT: ddphook_rt_collective: expected 'out' to be the "
        "same array as 'in' or not to overlap it, but they overlap in part");
  // Any call runs an all-reduce, but that of all-reduces nothing else.
  EXPECT_EQ(
      stepWith([&](Handle m) {
        ddphook_rt_collective(m, 0, shared + 3, shared + 4, /*step=*/0);
      }),
      "INVALID_ARGUMENT: ddphook_rt_collective: expected 'out' to be the same "
      "array as 'in' or not to overlap it, but they overlap in part");
  EXPECT_EQ(stepWith([&](Handle m) {
              EXPECT_EQ(
                  ddphook_rt_collective_start(m, 2, data, shared, /*step=*/0),
                  0);
            }),
            "INVALID_ARGUMENT: ddphook_rt_collective_start: expected one of 1 "
            "collectives, but got 2");
  EXPECT_EQ(stepWith([&](Handle m) {
              ddphook_rt_cast(m, data, 9, data, DDPHOOK_F32, 4);
            }),
            "INVALID_ARGUMENT: ddphook_rt_cast: expected the number of an "
            "element type, but got 9");
  EXPECT_EQ(stepWith([&](Handle m) {
              ddphook_rt_cast(m, data, DDPHOOK_F32, data, -1, 4);
            }),
            "INVALID_ARGUMENT: ddphook_rt_cast: expected the number of an "
            "element type, but got -1");
  EXPECT_EQ(stepWith([&](Handle m) {
              ddphook_rt_scale(m, 1, data, data, -4, DDPHOOK_F32);
            }),
            "INVALID_ARGUMENT: ddphook_rt_scale: expected a count of at least "
            "0, but got -4");
  EXPECT_EQ(
      stepWith([&](Handle m) {
        ddphook_rt_divide_by_group_size(m, 1, data, data, 4, DDPHOOK_F32);
      }),
      "INVALID_ARGUMENT: ddphook_rt_divide_by_group_size: expected one of 1 "
      "process groups, but got 1");
  EXPECT_EQ(stepWith([&](Handle m) { ddphook_rt_wait(m, 1); }),
            "INVALID_ARGUMENT: ddphook_rt_wait: expected a collective that was "
            "started, "
            "but there is none");
  EXPECT_EQ(stepWith([&](Handle m) {
              int64_t ticket =
                  ddphook_rt_collective_start(m, 0, data, data, /*step=*/0);
              ddphook_rt_wait(m, ticket + 1);
            }),
            "INVALID_ARGUMENT: expected a ticket from 1 to 1, but got 2");
}

TEST_F(CApi, StepsOutOfOrder) {
  TestModule module(Collectives{{4}});
  ASSERT_EQ(loadText(module), "OK");
  EXPECT_EQ(show(ddphook_rt_leave(module.handle)),
            "FAILED_PRECONDITION: no entry point is running");
  EXPECT_EQ(show(ddphook_rt_enter(module.handle, 1)),
            "INVALID_ARGUMENT: expected an entry point from 0 to 0, but got 1");
  EXPECT_EQ(ddphook_rt_enter(module.handle, -1), DDPHOOK_INVALID_ARGUMENT);
  ASSERT_EQ(show(ddphook_rt_enter(module.handle, 0)), "OK");
  EXPECT_EQ(show(ddphook_rt_enter(module.handle, 0)),
            "FAILED_PRECONDITION: entry point 'step' is running already");
  // leave() waits for what the step started and nobody waited for.
  float data[4] = {1, 2, 3, 4};
  ddphook_rt_collective_start(module.handle, 0, data, data, /*step=*/0);
  EXPECT_EQ(show(ddphook_rt_leave(module.handle)), "OK");
  // Outside of a step.
  ddphook_rt_collective(module.handle, 0, data, data, /*step=*/0);
  EXPECT_EQ(show(ddphook_rt_enter(module.handle, 0)),
            "FAILED_PRECONDITION: ddphook_rt_collective was called outside of "
            "an entry point");
}

TEST_F(CApi, StatisticsOfOtherVersions) {
  TestModule module(Collectives{{4}}, 100);
  ASSERT_EQ(loadText(module), "OK");
  struct {
    ddphook_stats_t known;
    uint64_t later;
  } longer;
  std::memset(&longer, 0xff, sizeof(longer));
  longer.known.struct_size = sizeof(longer);
  ASSERT_EQ(show(ddphook_module_stats(&module.compiled, &longer.known)), "OK");
  EXPECT_EQ(longer.known.arena_bytes, 100u);
  EXPECT_EQ(longer.known.struct_size, sizeof(longer));
  EXPECT_EQ(longer.later, 0u);

  ddphook_stats_t shorter;
  std::memset(&shorter, 0xff, sizeof(shorter));
  shorter.struct_size = offsetof(ddphook_stats_t, collectives);
  ASSERT_EQ(show(ddphook_module_stats(&module.compiled, &shorter)), "OK");
  EXPECT_EQ(shorter.steps, 0u);
  EXPECT_EQ(shorter.collectives, UINT64_MAX);
  shorter.struct_size = 0;
  EXPECT_EQ(ddphook_module_stats(&module.compiled, &shorter),
            DDPHOOK_INVALID_ARGUMENT);
}

TEST(Backend, ByName) {
  EXPECT_EQ(createWith("host"), "OK");
  EXPECT_EQ(createWith("host", "pigeon"),
            "INVALID_ARGUMENT: expected the transport 'auto', 'shm' or 'gloo', "
            "but got 'pigeon'");
  std::string unknown = createWith("nosuch");
  EXPECT_EQ(unknown.find("UNSUPPORTED: the backend 'nosuch' is not available "
                         "('host' is built in): "
                         "libddphook_backend_nosuch.so"),
            0u)
      << unknown;
  for (const char *bad : {"../x", "A", "a b", "/lib/libc"})
    EXPECT_EQ(createWith(bad).find("INVALID_ARGUMENT: expected a backend's "
                                   "name"),
              0u)
        << bad;
}

/// The libraries lie beside this program.
TEST(Backend, FromALibrary) {
  EXPECT_EQ(createWith("testing", "gloo"),
            "UNSUPPORTED: the test backend has no such transport");
  EXPECT_EQ(
      createWith("outdated")
          .find("UNSUPPORTED: expected libddphook_backend_outdated.so to have "
                "version " +
                std::to_string(DDPHOOK_BACKEND_ABI_VERSION) +
                " of the backend ABI, but got version 99 of "),
      0u);
  ddphook_options_t options = {};
  options.struct_size = sizeof(options);
  options.backend = "testing";
  ddphook_context_t *context = nullptr;
  ASSERT_EQ(show(ddphook_context_create(&options, &context)), "OK");
  TestModule encoded(Collectives{{4, "f32", "", true, 0, "ui8", 32}});
  EXPECT_EQ(show(ddphook_module_load(context, &encoded.compiled)),
            "UNSUPPORTED: the module has collectives encoded as ui8 in blocks "
            "of 32, which the backend 'test' does not know");
  TestModule module(Collectives{{4}}, 100);
  ASSERT_EQ(show(ddphook_module_load(context, &module.compiled)), "OK");
  float in[4] = {1, 2, 3, 4}, out[4] = {};
  ASSERT_EQ(show(ddphook_rt_enter(module.handle, 0)), "OK");
  ddphook_rt_scale(module.handle, 2, in, in, 4, DDPHOOK_F32);
  ddphook_rt_wait(module.handle, ddphook_rt_collective_start(
                                     module.handle, 0, in, out, /*step=*/0));
  ASSERT_EQ(show(ddphook_rt_leave(module.handle)), "OK");
  EXPECT_EQ(out[3], 8.0f);
  ASSERT_EQ(show(ddphook_rt_enter(module.handle, 0)), "OK");
  ddphook_rt_cast(module.handle, in, DDPHOOK_F32, out, DDPHOOK_F16, 1);
  EXPECT_EQ(show(ddphook_rt_leave(module.handle)),
            "UNSUPPORTED: the test backend supports f32 only");
  ddphook_context_destroy(context);
}
