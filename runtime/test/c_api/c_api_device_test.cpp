// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Memory, streams and options of devices in a world of one: the host, and a
// device whose memory the host cannot touch (guarded_backend.cpp).

#include "base/random.h"
#include "exec/exec_test_util.h"
#include "module/state_test_util.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <numeric>

using namespace ddphook;
using namespace ddphook::test;

namespace {

/// Memory that was allocated with a context, for `count` elements of type T.
template <typename T>
class Array {
public:
  Array(ddphook_context_t *context, size_t count)
      : context(context), count(count) {
    EXPECT_EQ(show(ddphook_memory_alloc(context, count * sizeof(T), &memory)),
              "OK");
  }
  Array(ddphook_context_t *context, const std::vector<T> &values)
      : Array(context, values.size()) {
    EXPECT_EQ(show(ddphook_memory_write(context, memory, values.data(),
                                        count * sizeof(T))),
              "OK");
  }
  ~Array() { ddphook_memory_free(context, memory, count * sizeof(T)); }
  Array(const Array &) = delete;
  Array &operator=(const Array &) = delete;

  std::vector<T> read() const {
    std::vector<T> values(count);
    EXPECT_EQ(show(ddphook_memory_read(context, values.data(), memory,
                                       count * sizeof(T))),
              "OK");
    return values;
  }
  T *get() const { return static_cast<T *>(memory); }

private:
  ddphook_context_t *context;
  size_t count;
  void *memory = nullptr;
};

/// Joins a world of one.
std::string createContext(const char *backend, const char *options,
                          ddphook_context_t **context) {
  ddphook_options_t place = jobOptions(0, 1, 0, "auto", 10);
  place.backend = backend;
  place.backend_options = options;
  return show(ddphook_context_create(&place, context));
}

/// Of the backend that is the test's parameter.
class Device : public testing::TestWithParam<const char *> {
protected:
  void SetUp() override {
    ASSERT_EQ(createContext(GetParam(), "", &context), "OK");
  }
  void TearDown() override { ddphook_context_destroy(context); }

  ddphook_context_t *context = nullptr;
};

class Guarded : public testing::Test {
protected:
  void TearDown() override { ddphook_context_destroy(context); }

  std::string create(const char *options = "") {
    return createContext("guarded", options, &context);
  }

  ddphook_context_t *context = nullptr;
};

std::string forDevice(std::string plan) {
  const std::string memory = R"("memory":"host")";
  return plan.replace(plan.find(memory), memory.size(), R"("memory":"device")");
}

void makeForDevice(TestModule &module) {
  module.setPlan(forDevice(module.plan));
}

} // namespace

INSTANTIATE_TEST_SUITE_P(, Device,
                         testing::Values("host", "guarded", "cuda_emulated"),
                         [](const auto &info) { return info.param; });

TEST_P(Device, MemoryIsZeroedAlignedAndCopied) {
  for (size_t bytes : {size_t(1), size_t(4096), (size_t(5) << 20) + 3}) {
    Array<char> array(context, bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(array.get()) % 256, 0u);
    EXPECT_EQ(array.read(), std::vector<char>(bytes, 0));
    std::vector<char> values(bytes);
    std::iota(values.begin(), values.end(), 1);
    ASSERT_EQ(
        show(ddphook_memory_write(context, array.get(), values.data(), bytes)),
        "OK");
    EXPECT_EQ(array.read(), values);
    // A part of it, from the middle.
    ASSERT_EQ(
        show(ddphook_memory_write(context, array.get() + bytes / 2, "x", 1)),
        "OK");
    values[bytes / 2] = 'x';
    EXPECT_EQ(array.read(), values);
  }
}

TEST_P(Device, NothingHasAnAddress) {
  Array<char> nothing(context, 0);
  EXPECT_NE(nothing.get(), nullptr);
  char byte = 5;
  EXPECT_EQ(show(ddphook_memory_write(context, nothing.get(), nullptr, 0)),
            "OK");
  EXPECT_EQ(show(ddphook_memory_write(context, nullptr, &byte, 0)), "OK");
  EXPECT_EQ(show(ddphook_memory_read(context, nullptr, nothing.get(), 0)),
            "OK");
  EXPECT_EQ(byte, 5);
}

TEST_P(Device, NullPointers) {
  const std::string noContext =
      "INVALID_ARGUMENT: expected a context, but got a null pointer";
  const std::string noArrays =
      "INVALID_ARGUMENT: expected two arrays, but got a null pointer";
  void *memory = &memory;
  char byte = 0;
  EXPECT_EQ(show(ddphook_memory_alloc(nullptr, 1, &memory)), noContext);
  EXPECT_EQ(show(ddphook_memory_alloc(context, 1, nullptr)),
            "INVALID_ARGUMENT: expected an output pointer for the address, but "
            "got a null pointer");
  EXPECT_EQ(show(ddphook_memory_write(nullptr, &byte, &byte, 1)), noContext);
  EXPECT_EQ(show(ddphook_memory_write(context, nullptr, &byte, 1)), noArrays);
  EXPECT_EQ(show(ddphook_memory_read(nullptr, &byte, &byte, 1)), noContext);
  EXPECT_EQ(show(ddphook_memory_read(context, &byte, nullptr, 1)), noArrays);
  EXPECT_EQ(show(ddphook_memory_read(context, nullptr, &byte, 1)), noArrays);
  EXPECT_EQ(show(ddphook_context_set_stream(nullptr, nullptr)), noContext);
  EXPECT_EQ(show(ddphook_synchronize(nullptr)), noContext);
  ddphook_memory_free(context, nullptr, 1);
  ddphook_memory_free(nullptr, &byte, 1);
}

TEST_P(Device, MemoryIsExhausted) {
  void *memory = &memory;
  const size_t most = std::numeric_limits<size_t>::max() / 4;
  EXPECT_EQ(ddphook_memory_alloc(context, most, &memory),
            DDPHOOK_RESOURCE_EXHAUSTED);
  EXPECT_EQ(memory, nullptr);
  EXPECT_NE(std::string(ddphook_last_error()), "");
  // That is no failure of the job.
  EXPECT_EQ(Array<char>(context, 10).read(), std::vector<char>(10, 0));
}

TEST_P(Device, WhatIsNoStreamIsRefused) {
  int stream = 0;
  const bool hasStreams = std::string(GetParam()) == "cuda_emulated";
  EXPECT_EQ(ddphook_context_set_stream(context, &stream),
            hasStreams ? DDPHOOK_INVALID_ARGUMENT : DDPHOOK_UNSUPPORTED);
  EXPECT_EQ(show(ddphook_context_set_stream(context, nullptr)), "OK");
  EXPECT_EQ(show(ddphook_synchronize(context)), "OK");
}

TEST_P(Device, MetricsOfWhatCompressionLoses) {
  TemporaryDirectory directory;
  const std::string file = directory.path("m");
  ::setenv("DDPHOOK_METRICS", (file + "{rank}").c_str(), 1);
  ::setenv("DDPHOOK_METRICS_INTERVAL", "1", 1);
  ::setenv("DDPHOOK_METRICS_ERRORS", "1", 1);
  ::setenv("DDPHOOK_METRICS_NON_FINITE", "1", 1);
  ddphook_context_t *observed = nullptr;
  const std::string created = createContext(GetParam(), "", &observed);
  for (const char *name : {"", "_INTERVAL", "_ERRORS", "_NON_FINITE"})
    ::unsetenv((std::string("DDPHOOK_METRICS") + name).c_str());
  ASSERT_EQ(created, "OK");
  TestModule module(Collectives{{3, "f32", "f16"}});
  const std::string empty = R"("matrix_lists":[])";
  module.plan.replace(module.plan.find(empty), empty.size(),
                      R"("matrix_lists":[{"dtype":"f32","begin":0,"end":6,)"
                      R"("matrices":[[1,0,0,2,2,1]],)"
                      R"("pieces":[[0,0,1],[5,1,1]]}])");
  makeForDevice(module);
  ASSERT_EQ(show(ddphook_module_load(observed, &module.compiled)), "OK");
  {
    // 2049 lies halfway between two numbers of f16, and becomes 2048.
    Array<float> values(observed, {2049, 0, -2048});
    Array<float> infinite(observed, {1, INFINITY, 1});
    for (float *data : {values.get(), infinite.get()}) {
      ASSERT_EQ(show(ddphook_rt_enter(module.handle, 0)), "OK");
      ddphook_rt_collective(module.handle, 0, data, data, /*step=*/0);
      EXPECT_EQ(show(ddphook_rt_leave(module.handle)), "OK");
    }
    EXPECT_EQ(values.read(), (std::vector<float>{2048, 0, -2048}));
    // A step that keeps one element, 3, and one that compresses the matrix
    // [[3, 0], [0, 4]] of elements 1 … 4 to its second row.
    Array<float> entries(observed, {3, 0}), rest(observed, {0, -4, 0});
    ASSERT_EQ(show(ddphook_rt_enter(module.handle, 0)), "OK");
    ddphook_rt_measure_entries(module.handle, 0, 1, entries.get(), rest.get(),
                               3);
    EXPECT_EQ(show(ddphook_rt_leave(module.handle)), "OK");
    Array<float> matrix(observed, {1e30f, 3, 0, 0, 4, INFINITY});
    Array<float> p(observed, {0, 1}), q(observed, {0, 4});
    ASSERT_EQ(show(ddphook_rt_enter(module.handle, 0)), "OK");
    ddphook_rt_measure_product(module.handle, 0, 0, matrix.get(), p.get(),
                               q.get());
    EXPECT_EQ(show(ddphook_rt_leave(module.handle)), "OK");
  }
  ddphook_context_destroy(observed);
  std::ifstream lines(file + "0");
  std::string line;
  std::vector<nlohmann::json> buckets;
  while (std::getline(lines, line))
    buckets.push_back(nlohmann::json::parse(line)["buckets"][0]);
  ASSERT_EQ(buckets.size(), 4u);
  EXPECT_NEAR(buckets[0]["relative_error"].get<double>(),
              1 / std::hypot(2049.0, 2048.0), 1e-12);
  EXPECT_TRUE(buckets[1]["relative_error"].is_null());
  EXPECT_NEAR(buckets[2]["relative_error"].get<double>(), 0.8, 1e-12);
  EXPECT_NEAR(buckets[3]["relative_error"].get<double>(), 0.6, 1e-12);
  EXPECT_EQ(buckets[0]["non_finite"], 0);
  EXPECT_EQ(buckets[1]["non_finite"], 1);
}

TEST_P(Device, Step) {
  TestModule module(Collectives{{5, "f32", "f16", true}, {5}}, 100);
  makeForDevice(module);
  ASSERT_EQ(show(ddphook_module_load(context, &module.compiled)), "OK");
  const std::vector<float> values = {1, 2.5f, -3, 0, 1e9f};
  Array<float> in(context, values), out(context, 5), copied(context, 5);
  ASSERT_EQ(show(ddphook_rt_enter(module.handle, 0)), "OK");
  char *arena = static_cast<char *>(ddphook_rt_arena(module.handle));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(arena) % 64, 0u);
  ddphook_rt_scale(module.handle, 2, in.get(), arena, 5, DDPHOOK_F32);
  ddphook_rt_collective(module.handle, 0, arena, out.get(), /*step=*/0);
  EXPECT_EQ(ddphook_rt_is_finite(module.handle, out.get(), 5, DDPHOOK_F32), 0);
  EXPECT_EQ(ddphook_rt_is_finite(module.handle, in.get(), 5, DDPHOOK_F32), 1);
  ddphook_rt_wait(
      module.handle,
      ddphook_rt_collective_start(module.handle, 1, arena, arena, /*step=*/0));
  ddphook_rt_copy(module.handle, arena, copied.get(), 5 * sizeof(float));
  EXPECT_EQ(show(ddphook_rt_leave(module.handle)), "OK");
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(out.read(), (std::vector<float>{2, 5, -6, 0, infinity}));
  EXPECT_EQ(copied.read(), (std::vector<float>{2, 5, -6, 0, 2e9f}));
}

/// Compiled code reads counters and generators, on every device.
TEST_P(Device, IntegerStatesAreInHostMemory) {
  TestModule module;
  setStates(module, powersgdStates());
  makeForDevice(module);
  ASSERT_EQ(show(ddphook_module_load(context, &module.compiled)), "OK");
  std::vector<int32_t> generator(generatorElements);
  seedGenerator(42, generator.data());
  std::vector<float> q(40), drawn(40);
  std::vector<uint16_t> q1(5);
  const int64_t draws[] = {40, 3, 2};
  ASSERT_TRUE(
      drawNormal(generator.data(), draws, 1, q.data(), Dtype::F32).isOk());
  ASSERT_TRUE(drawNormal(generator.data(), draws + 1, 2, q1.data(), Dtype::BF16)
                  .isOk());
  std::vector<float> gotQ(40), error(620, 1);
  std::vector<uint16_t> gotQ1(5);
  auto read = [&](int state, auto &values) {
    return show(ddphook_memory_read(context, values.data(),
                                    ddphook_rt_state(module.handle, state),
                                    values.size() * sizeof(values[0])));
  };
  for (int step = 0; step < 2; ++step) {
    ASSERT_EQ(show(ddphook_rt_enter(module.handle, 0)), "OK");
    EXPECT_EQ(read(2, error), "OK");
    EXPECT_EQ(error, std::vector<float>(620, 0));
    EXPECT_EQ(read(3, gotQ), "OK");
    EXPECT_EQ(gotQ, q) << "step " << step;
    EXPECT_EQ(read(5, gotQ1), "OK");
    EXPECT_EQ(gotQ1, q1);
    int64_t *iteration =
        static_cast<int64_t *>(ddphook_rt_state(module.handle, 0));
    EXPECT_EQ(*iteration, step);
    ++*iteration;
    int32_t *words = static_cast<int32_t *>(ddphook_rt_state(module.handle, 1));
    EXPECT_EQ(std::vector<int32_t>(words, words + generatorElements),
              generator);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(words) % 64, 0u);
    ddphook_rt_random_normal(module.handle, words, draws, 1,
                             ddphook_rt_state(module.handle, 3), DDPHOOK_F32);
    ASSERT_EQ(show(ddphook_rt_leave(module.handle)), "OK");
    ASSERT_TRUE(
        drawNormal(generator.data(), draws, 1, q.data(), Dtype::F32).isOk());
  }
}

/// What one device saves, every other one loads.
TEST_P(Device, CheckpointsDoNotDependOnTheDevice) {
  TemporaryDirectory directory;
  const std::string pattern = directory.path("c.{rank}.safetensors");
  auto step = [](TestModule &module) {
    EXPECT_EQ(show(ddphook_rt_enter(module.handle, 0)), "OK");
    ++*static_cast<int64_t *>(ddphook_rt_state(module.handle, 0));
    const int64_t draws[] = {620};
    ddphook_rt_random_normal(module.handle, ddphook_rt_state(module.handle, 1),
                             draws, 1, ddphook_rt_state(module.handle, 2),
                             DDPHOOK_F32);
    EXPECT_EQ(show(ddphook_rt_leave(module.handle)), "OK");
  };
  auto readError = [](ddphook_context_t *on, TestModule &module) {
    std::vector<float> values(620);
    EXPECT_EQ(show(ddphook_memory_read(on, values.data(),
                                       ddphook_rt_state(module.handle, 2),
                                       values.size() * sizeof(float))),
              "OK");
    return values;
  };
  TestModule module;
  setStates(module, powersgdStates());
  makeForDevice(module);
  ASSERT_EQ(show(ddphook_module_load(context, &module.compiled)), "OK");
  step(module);
  ASSERT_EQ(show(ddphook_state_save(&module.compiled, pattern.c_str(), 0)),
            "OK");
  const std::vector<float> first = readError(context, module);
  EXPECT_TRUE(std::isfinite(first[619]) && first[619] != 0);
  step(module);
  const std::vector<float> second = readError(context, module);

  for (const char *other : {"host", "guarded", "cuda_emulated"}) {
    ddphook_context_t *otherContext = nullptr;
    ASSERT_EQ(createContext(other, "", &otherContext), "OK");
    TestModule loaded;
    setStates(loaded, powersgdStates());
    makeForDevice(loaded);
    ASSERT_EQ(show(ddphook_module_load(otherContext, &loaded.compiled)), "OK");
    ddphook_state_info_t info = {};
    info.struct_size = sizeof(info);
    ASSERT_EQ(show(ddphook_state_load(&loaded.compiled, pattern.c_str(),
                                      DDPHOOK_STATE_STRICT, &info)),
              "OK");
    EXPECT_EQ(info.loaded, 6);
    EXPECT_EQ(readError(otherContext, loaded), first) << other;
    step(loaded);
    EXPECT_EQ(*static_cast<int64_t *>(ddphook_rt_state(loaded.handle, 0)), 2);
    EXPECT_EQ(readError(otherContext, loaded), second) << other;
    ddphook_context_destroy(otherContext);
  }
}

TEST_P(Device, KnowsAllEncodings) {
  for (const auto &[code, block] :
       {std::pair{"bf16", 0}, std::pair{"i8", 32}, std::pair{"ui8", 0},
        std::pair{"ui8", 7}, std::pair{"ui1", 64}}) {
    TestModule module(Collectives{{100, "f32", "", true, 0, code, block}});
    makeForDevice(module);
    ASSERT_EQ(show(ddphook_module_load(context, &module.compiled)), "OK");
    // The collective has the room that it needs.
    Array<float> in(context, std::vector<float>(100, 2.5F)), out(context, 100);
    ASSERT_EQ(show(ddphook_rt_enter(module.handle, 0)), "OK");
    ddphook_rt_collective(module.handle, 0, in.get(), out.get(), /*step=*/0);
    ASSERT_EQ(show(ddphook_rt_leave(module.handle)), "OK") << code;
    for (float value : out.read())
      ASSERT_NEAR(value, 2.5F, 0.02) << code;
    EXPECT_EQ(show(ddphook_module_unload(&module.compiled)), "OK");
  }
}

TEST_F(Guarded, RefusesModulesForTheHost) {
  ASSERT_EQ(create(), "OK");
  TestModule module(Collectives{{4}});
  EXPECT_EQ(show(ddphook_module_load(context, &module.compiled)),
            "FAILED_PRECONDITION: the module reads and writes memory of the "
            "host itself, which the backend 'guarded' does not have: expected "
            "one compiled for a device");
  EXPECT_EQ(module.handle, nullptr);
  makeForDevice(module);
  EXPECT_EQ(show(ddphook_module_load(context, &module.compiled)), "OK");
}

/// The guard itself: what the other tests rely on.
TEST_F(Guarded, TouchedMemoryKills) {
  ASSERT_EQ(create(), "OK");
  Array<int> array(context, 1000);
  volatile int *memory = array.get();
  EXPECT_DEATH((void)memory[500], "");
  EXPECT_DEATH(memory[0] = 1, "");
}

TEST_F(Guarded, HostArraysAreRefused) {
  ASSERT_EQ(create(), "OK");
  float onHost[4] = {};
  TestModule module(Collectives{{4}});
  makeForDevice(module);
  ASSERT_EQ(show(ddphook_module_load(context, &module.compiled)), "OK");
  Array<float> array(context, 4);
  EXPECT_EQ(show(ddphook_memory_write(context, onHost, onHost, sizeof(onHost))),
            "INVALID_ARGUMENT: expected to copy from the host to the device");
  ASSERT_EQ(show(ddphook_rt_enter(module.handle, 0)), "OK");
  ddphook_rt_collective(module.handle, 0, onHost, array.get(), /*step=*/0);
  const std::string failure =
      "INVALID_ARGUMENT: expected arrays in the device's memory, but got "
      "another address";
  EXPECT_EQ(show(ddphook_rt_leave(module.handle)), failure);
  // The context is dead.
  void *memory = &memory;
  EXPECT_EQ(show(ddphook_memory_alloc(context, 1, &memory)), failure);
  EXPECT_EQ(memory, nullptr);
  EXPECT_EQ(show(ddphook_memory_write(context, array.get(), onHost, 1)),
            failure);
  EXPECT_EQ(show(ddphook_memory_read(context, onHost, array.get(), 1)),
            failure);
  EXPECT_EQ(show(ddphook_context_set_stream(context, nullptr)), failure);
  EXPECT_EQ(show(ddphook_synchronize(context)), failure);
}

TEST_F(Guarded, ArenasThatDoNotFit) {
  ASSERT_EQ(create("limit=1000"), "OK");
  TestModule module(Collectives{}, 1001);
  makeForDevice(module);
  EXPECT_EQ(show(ddphook_module_load(context, &module.compiled)),
            "RESOURCE_EXHAUSTED: cannot allocate 1001 bytes of guarded memory");
  TestModule small(Collectives{}, 900);
  makeForDevice(small);
  EXPECT_EQ(show(ddphook_module_load(context, &small.compiled)), "OK");
  void *memory = nullptr;
  EXPECT_EQ(ddphook_memory_alloc(context, 101, &memory),
            DDPHOOK_RESOURCE_EXHAUSTED);
  EXPECT_EQ(show(ddphook_module_unload(&small.compiled)), "OK");
  EXPECT_EQ(show(ddphook_memory_alloc(context, 101, &memory)), "OK");
  ddphook_memory_free(context, memory, 101);
}

/// Steps wait for the device, unless they run on a stream of the caller.
TEST_F(Guarded, StreamsAreLeftRunning) {
  ASSERT_EQ(create("streams=1,fail=2"), "OK");
  TestModule module;
  makeForDevice(module);
  ASSERT_EQ(show(ddphook_module_load(context, &module.compiled)), "OK");
  auto step = [&] {
    std::string entered = show(ddphook_rt_enter(module.handle, 0));
    return entered == "OK" ? show(ddphook_rt_leave(module.handle)) : entered;
  };
  EXPECT_EQ(step(), "OK"); // waits for the first time
  int stream = 0;
  ASSERT_EQ(show(ddphook_context_set_stream(context, &stream)), "OK");
  EXPECT_EQ(step(), "OK");
  EXPECT_EQ(step(), "OK");
  ASSERT_EQ(show(ddphook_context_set_stream(context, nullptr)), "OK");
  const std::string failure = "INTERNAL: the device failed as it was told to";
  EXPECT_EQ(step(), failure);
  EXPECT_EQ(step(), failure);
  EXPECT_EQ(show(ddphook_barrier(context)), failure);
}

/// What a device did not finish is not saved.
TEST_F(Guarded, FailuresOfStreamsAreNotSaved) {
  ASSERT_EQ(create("streams=1,fail=1"), "OK");
  TemporaryDirectory directory;
  TestModule module;
  setStates(module, powersgdStates());
  makeForDevice(module);
  ASSERT_EQ(show(ddphook_module_load(context, &module.compiled)), "OK");
  int stream = 0;
  ASSERT_EQ(show(ddphook_context_set_stream(context, &stream)), "OK");
  ASSERT_EQ(show(ddphook_rt_enter(module.handle, 0)), "OK");
  ASSERT_EQ(show(ddphook_rt_leave(module.handle)), "OK");
  EXPECT_EQ(show(ddphook_state_save(&module.compiled,
                                    directory.path("c").c_str(), 0)),
            "INTERNAL: the device failed as it was told to");
  EXPECT_EQ(directory.list(), std::vector<std::string>{});
}

TEST(BackendOptions, AreTheBackends) {
  ddphook_context_t *context = nullptr;
  EXPECT_EQ(createContext("guarded", "limit=5,colour=red", &context),
            "INVALID_ARGUMENT: the guarded backend has no option 'colour'");
  EXPECT_EQ(createContext("host", "colour=red", &context),
            "INVALID_ARGUMENT: expected the host backend's option "
            "async_progress, but got 'colour'");
  EXPECT_EQ(createContext("host", "async_progress=never,async_progress=never",
                          &context),
            "INVALID_ARGUMENT: option async_progress is given twice");
  EXPECT_EQ(createContext("host", "async_progress=maybe", &context),
            "INVALID_ARGUMENT: option async_progress: expected 'auto', "
            "'always' or 'never', but got 'maybe'");
  EXPECT_EQ(createContext("host", "async_progress", &context),
            "INVALID_ARGUMENT: expected an option name=value, but got "
            "'async_progress'");
  ::setenv("DDPHOOK_BACKEND_OPTIONS", "colour=blue", 1);
  EXPECT_EQ(createContext(nullptr, nullptr, &context),
            "INVALID_ARGUMENT: expected the host backend's option "
            "async_progress, but got 'colour'");
  // The program's own words win.
  EXPECT_EQ(createContext("guarded", "limit=5", &context), "OK");
  ddphook_context_destroy(context);
  ::unsetenv("DDPHOOK_BACKEND_OPTIONS");
}
