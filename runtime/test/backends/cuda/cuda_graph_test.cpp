// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Steps of modules, captured through the C ABI and replayed: they have the bits
// of the same steps without graphs, and the rules of docs/cuda.md about what
// may happen between a capture and the last replay hold. Modules are made by
// hand; their steps call what ddp-pipeline would let them call. Ranks are
// threads, each with a GPU of its own: where there are fewer GPUs there are
// fewer ranks, and where there is none the tests are skipped.

#include "cuda_backend_test_util.h"
#include "module/state_test_util.h"

#include <gtest/gtest.h>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <string_view>
#include <thread>

using namespace ddphook;
using namespace ddphook::test;

namespace {

constexpr int64_t kCount = 620; // 30 x 20, and 20 that are no matrix's
constexpr unsigned kSeed = 20261127;
using Floats = std::vector<float>;

/// Ranks as threads need a device each; read when the first one is asked for.
const int devices = ::setenv("EMULATED_CUDA_DEVICES", "4", 0);

/// What a rank computes as the gradient of a step.
Floats gradientOf(int rank, int step) {
  std::mt19937_64 random(kSeed + 100 * static_cast<unsigned>(step) +
                         static_cast<unsigned>(rank));
  std::normal_distribution<float> normal;
  Floats values(kCount);
  for (float &value : values)
    value = normal(random);
  return values;
}

void replace(std::string &text, const std::string &from,
             const std::string &to) {
  const size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
}

const TestCollective kStochastic =
    TestCollective(kCount, "f32", "", true, 0, "i8", 64).withStream(7);

/// Means of P, Q, the rest, and of all in an encoding, which rounds to nearest
/// or stochastically.
const Collectives kCollectives = {{60, "f32", "", true},
                                  {40, "f32", "", true},
                                  {20, "f32", "", true},
                                  {kCount, "f32", "", true, 0, "i8", 64},
                                  kStochastic};
constexpr int64_t kArenaBytes = 4096;

void prepare(TestModule &module) {
  setStates(module, powersgdStates());
  std::string plan = module.plan;
  replace(plan, R"("memory":"host")", R"("memory":"device")");
  replace(plan, R"("matrix_lists":[])",
          R"("matrix_lists":[{"dtype":"f32","begin":0,"end":620,)"
          R"("matrices":[[0,0,0,30,20,2]],"pieces":[[600,0,20]]}])");
  module.setPlan(plan);
}

void powerSgd(TestModule &module, float *gradient) {
  ddphook_module_t *handle = module.handle;
  char *arena = static_cast<char *>(ddphook_rt_arena(handle));
  void *m = arena, *p = arena + 2560, *rest = arena + 2816;
  void *error = ddphook_rt_state(handle, 2), *q = ddphook_rt_state(handle, 3);
  ddphook_rt_project(handle, 0, gradient, error, q, m, p, rest);
  const int64_t ticket =
      ddphook_rt_collective_start(handle, 2, rest, rest, /*step=*/0);
  ddphook_rt_collective(handle, 0, p, p, /*step=*/0);
  ddphook_rt_orthogonalize(handle, 0, DDPHOOK_FACTOR_P, p, p, 1e-8);
  ddphook_rt_matmul(handle, 0, DDPHOOK_MATMUL_Q, m, p, q);
  ddphook_rt_collective(handle, 1, q, q, /*step=*/0);
  ddphook_rt_wait(handle, ticket);
  ddphook_rt_reconstruct(handle, 0, p, q, rest, m, gradient, error, -1);
}

void quantized(TestModule &module, float *gradient) {
  ddphook_module_t *handle = module.handle;
  void *error = ddphook_rt_state(handle, 2);
  ddphook_rt_add(handle, gradient, error, gradient, kCount, DDPHOOK_F32);
  ddphook_rt_encoding_error(handle, gradient, error, kCount, DDPHOOK_F32,
                            DDPHOOK_ENCODING_I8, 64, /*group=*/-1,
                            /*stream=*/-1, /*step=*/0);
  ddphook_rt_collective(handle, 3, gradient, gradient, /*step=*/0);
}

/// Counts its steps in a state of the host's memory, as compiled code does, and
/// rounds with that number.
void stochastic(TestModule &module, float *gradient) {
  ddphook_module_t *handle = module.handle;
  auto *step = static_cast<int64_t *>(ddphook_rt_state(handle, 0));
  ddphook_rt_collective(handle, 4, gradient, gradient, *step);
  ++*step;
}

constexpr int64_t kKept = 40;

/// What densify() adds lies here.
void *entriesOf(TestModule &module) { return ddphook_rt_arena(module.handle); }

void addLargest(TestModule &module, float *gradient) {
  ddphook_rt_densify(module.handle, entriesOf(module), /*parts=*/1, kKept,
                     gradient, kCount);
}

void largest(TestModule &module, float *gradient) {
  ddphook_module_t *handle = module.handle;
  void *error = ddphook_rt_state(handle, 2);
  ddphook_rt_add(handle, gradient, error, gradient, kCount, DDPHOOK_F32);
  ddphook_rt_sparsify(handle, kKept, gradient, kCount, entriesOf(module),
                      error);
  addLargest(module, gradient);
  ddphook_rt_collective(handle, 3, gradient, gradient, /*step=*/0);
}

/// Of all devices.
const char *backendOptions = "";

/// A step that averages a gradient, in place.
using Calls = void (*)(TestModule &, float *);

/// A rank: its context, its stream and the array of its gradient.
class Member {
public:
  Member(int rank, int ranks, int port) : rank(rank) {
    EXPECT_EQ(cudaSetDevice(rank), cudaSuccess);
    ddphook_options_t place = jobOptions(rank, ranks, port, "auto", 100);
    place.local_rank = rank;
    place.backend = "program";
    place.backend_options = backendOptions;
    EXPECT_EQ(show(ddphook_context_create(&place, &context)), "OK");
    stream = std::make_unique<Stream>();
    void *memory = nullptr;
    EXPECT_EQ(
        show(ddphook_memory_alloc(context, kCount * sizeof(float), &memory)),
        "OK");
    gradient = static_cast<float *>(memory);
    load(module);
    EXPECT_EQ(show(ddphook_context_set_stream(context, stream->get())), "OK");
  }
  ~Member() {
    if (context)
      ddphook_memory_free(context, gradient, kCount * sizeof(float));
    ddphook_context_destroy(context);
  }
  Member(const Member &) = delete;
  Member &operator=(const Member &) = delete;

  void load(TestModule &other) {
    prepare(other);
    EXPECT_EQ(show(ddphook_module_load(context, &other.compiled)), "OK");
  }
  void enqueue(Calls calls) { enqueue(calls, module); }
  void enqueue(Calls calls, TestModule &on) {
    EXPECT_EQ(show(ddphook_rt_enter(on.handle, 0)), "OK");
    calls(on, gradient);
    EXPECT_EQ(show(ddphook_rt_leave(on.handle)), "OK");
  }
  std::unique_ptr<Graph> capture(Calls calls) {
    auto graph = std::make_unique<Graph>(stream->get(),
                                         cudaStreamCaptureModeThreadLocal);
    enqueue(calls);
    graph->end();
    return graph;
  }
  void write(int step) {
    const Floats values = gradientOf(rank, step);
    EXPECT_EQ(show(ddphook_memory_write(context, gradient, values.data(),
                                        kCount * sizeof(float))),
              "OK");
  }
  Floats read(const void *address, size_t count) {
    Floats values(count, NAN);
    EXPECT_EQ(show(ddphook_memory_read(context, values.data(), address,
                                       count * sizeof(float))),
              "OK");
    return values;
  }
  Floats errorOf(TestModule &of) { return read(stateOf(of, 2), kCount); }
  /// The average, the error feedback and the factors.
  Floats result() {
    Floats all = read(gradient, kCount);
    for (const Floats &state : {errorOf(module), read(stateOf(module, 3), 40)})
      all.insert(all.end(), state.begin(), state.end());
    return all;
  }
  void *stateOf(TestModule &of, int state) {
    return ddphook_rt_state(of.handle, state);
  }

  const int rank;
  ddphook_context_t *context = nullptr;
  std::unique_ptr<Stream> stream;
  float *gradient = nullptr;
  TestModule module{kCollectives, kArenaBytes};
};

int gpuCount() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

/// As many ranks, or as many as there are GPUs.
int upTo(int ranks) { return std::min(ranks, gpuCount()); }

/// Runs `body` as every rank of a job.
void runJob(int ranks, const std::function<void(Member &)> &body) {
  const int port = freePort();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      Member member(rank, ranks, port);
      if (member.context)
        body(member);
    });
  for (std::thread &thread : threads)
    thread.join();
}

constexpr int kSteps = 5;
using History = std::vector<Floats>;

bool sameBits(const Floats &a, const Floats &b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// The results of steps from `first` on, without graphs.
History eagerly(Member &member, Calls calls, int first = 0,
                int steps = kSteps) {
  History history;
  for (int step = first; step < first + steps; ++step) {
    member.write(step);
    member.enqueue(calls);
    history.push_back(member.result());
  }
  return history;
}

/// The same with one graph, which is launched on its own stream.
History replayed(Member &member, Graph &graph, int first = 0,
                 int steps = kSteps) {
  History history;
  for (int step = first; step < first + steps; ++step) {
    member.write(step);
    graph.launch();
    history.push_back(member.result());
  }
  return history;
}

/// What every rank has after steps without graphs.
std::vector<History> expectedOf(int ranks, Calls calls, int steps = kSteps) {
  std::vector<History> all(static_cast<size_t>(ranks));
  runJob(ranks, [&](Member &member) {
    all[static_cast<size_t>(member.rank)] = eagerly(member, calls, 0, steps);
  });
  return all;
}

void expectSame(const History &got, const History &expected, size_t first,
                const std::string &what) {
  ASSERT_LE(first + got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(sameBits(got[i], expected[first + i]))
        << what << ", step " << first + i << ", seed " << kSeed;
}

void needGpu() {
  constexpr bool isReal = std::string_view(DDPHOOK_TEST_CUDA_BACKEND) == "cuda";
  if (gpuCount() >= (isReal ? 1 : 3))
    return;
  const char *required = std::getenv("DDPHOOK_REQUIRE_GPU");
  ASSERT_TRUE(isReal && !(required && std::string_view(required) == "1"))
      << "there are " << gpuCount() << " GPUs";
  // ctest knows the words.
  GTEST_SKIP() << "no GPU to run on";
}

class Capture : public testing::Test {
protected:
  void SetUp() override { needGpu(); }
};

struct NamedCalls {
  const char *name;
  Calls calls;
  const char *options;
};

class Graphs : public testing::TestWithParam<NamedCalls> {
protected:
  void SetUp() override {
    needGpu();
    backendOptions = GetParam().options;
  }
  void TearDown() override { backendOptions = ""; }
  Calls calls() const { return GetParam().calls; }
};
INSTANTIATE_TEST_SUITE_P(
    , Graphs,
    testing::Values(NamedCalls{"powersgd", powerSgd, ""},
                    NamedCalls{"powersgdBlocking", powerSgd, "blocking=1"},
                    NamedCalls{"int8", quantized, ""},
                    NamedCalls{"topk", largest, "blocking=1"}),
    [](const auto &info) { return info.param.name; });

/// A file's pattern in a directory that goes away.
class Checkpoint {
public:
  Checkpoint() {
    std::string name =
        (std::filesystem::temp_directory_path() / "ddphook-graph-XXXXXX")
            .string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    directory = name;
  }
  ~Checkpoint() {
    std::error_code ignored;
    std::filesystem::remove_all(directory, ignored);
  }
  std::string pattern() const { return directory + "/c.{rank}.safetensors"; }

private:
  std::string directory;
};

} // namespace

TEST_P(Graphs, ReplaysHaveTheBitsOfTheSteps) {
  for (int ranks = 1; ranks <= upTo(3); ++ranks) {
    const std::vector<History> expected = expectedOf(ranks, calls());
    // What is compared changes from step to step.
    EXPECT_FALSE(sameBits(expected[0][1], expected[0][2]));
    runJob(ranks, [&](Member &member) {
      const History &mine = expected[static_cast<size_t>(member.rank)];
      const std::string what = std::to_string(ranks) + " ranks";
      expectSame(eagerly(member, calls(), 0, 1), mine, 0, what);
      std::unique_ptr<Graph> graph = member.capture(calls());
      expectSame(replayed(member, *graph, 1, kSteps - 2), mine, 1, what);
      // A step without the graph goes on where its replays have come to.
      expectSame(eagerly(member, calls(), kSteps - 1, 1), mine, kSteps - 1,
                 what);
      graph.reset();
    });
  }
}

/// States are loaded where they lie: a graph goes on with what was loaded.
TEST_P(Graphs, StatesMayBeSavedAndLoadedBetweenReplays) {
  const std::vector<History> expected = expectedOf(upTo(2), calls());
  Checkpoint checkpoint;
  runJob(upTo(2), [&](Member &member) {
    const History &mine = expected[static_cast<size_t>(member.rank)];
    eagerly(member, calls(), 0, 1);
    std::unique_ptr<Graph> graph = member.capture(calls());
    // Saving waits for the replay itself.
    member.write(1);
    graph->launch();
    ASSERT_EQ(show(ddphook_state_save(&member.module.compiled,
                                      checkpoint.pattern().c_str(), 0)),
              "OK");
    expectSame(replayed(member, *graph, 2, 2), mine, 2, "behind a save");
    ASSERT_EQ(show(ddphook_state_load(&member.module.compiled,
                                      checkpoint.pattern().c_str(),
                                      DDPHOOK_STATE_STRICT, nullptr)),
              "OK");
    expectSame(replayed(member, *graph, 2, 3), mine, 2, "behind a load");
    graph.reset();
  });
}

/// Once it is captured, a graph runs on any stream, behind what the caller puts
/// it behind; and the context's stream may change.
TEST_P(Graphs, StreamsMayChange) {
  const std::vector<History> expected = expectedOf(upTo(2), calls());
  runJob(upTo(2), [&](Member &member) {
    const History &mine = expected[static_cast<size_t>(member.rank)];
    eagerly(member, calls(), 0, 1);
    std::unique_ptr<Graph> graph = member.capture(calls());
    Stream other;
    ASSERT_EQ(show(ddphook_context_set_stream(member.context, other.get())),
              "OK");
    member.write(1);
    graph->launchOn(other.get());
    expectSame({member.result()}, mine, 1, "on another stream");
    // The stream of the capture has no part in it any more.
    member.stream = nullptr;
    expectSame(eagerly(member, calls(), 2, 1), mine, 2, "without the graph");
    member.write(3);
    graph->launchOn(other.get());
    expectSame({member.result()}, mine, 3, "on another stream again");
    graph.reset();
    ASSERT_EQ(show(ddphook_context_set_stream(member.context, nullptr)), "OK");
  });
}

/// What another module does in between, loading and unloading included, is not
/// seen by a graph; and one graph may hold steps of both.
TEST_P(Graphs, OtherModulesMayComeAndGo) {
  const std::vector<History> expected = expectedOf(upTo(2), calls());
  runJob(upTo(2), [&](Member &member) {
    const History &mine = expected[static_cast<size_t>(member.rank)];
    eagerly(member, calls(), 0, 1);
    std::unique_ptr<Graph> graph = member.capture(calls());
    TestModule second(kCollectives, kArenaBytes);
    member.load(second);
    for (int step : {7, 8}) {
      member.write(step);
      member.enqueue(calls(), second);
    }
    Graph both(member.stream->get(), cudaStreamCaptureModeThreadLocal);
    member.enqueue(calls(), second);
    member.enqueue(calls());
    both.end();
    expectSame(replayed(member, *graph, 1, 2), mine, 1, "beside a module");
    const Floats before = member.errorOf(second);
    member.write(3);
    both.launch();
    EXPECT_FALSE(sameBits(member.errorOf(second), before));
    both.destroy();
    ASSERT_EQ(show(ddphook_module_unload(&second.compiled)), "OK");
    graph->launch();
    EXPECT_EQ(show(ddphook_synchronize(member.context)), "OK");
    graph.reset();
  });
}

/// What allocates, waits or connects is no part of a graph, and what a graph
/// may need does not go. The capture goes on.
TEST_F(Capture, RefusesToLoadAndToUnload) {
  runJob(1, [](Member &member) {
    eagerly(member, quantized, 0, 1);
    Checkpoint checkpoint;
    TestModule second(kCollectives, kArenaBytes);
    prepare(second);
    Graph graph(member.stream->get(), cudaStreamCaptureModeThreadLocal);
    auto isRefused = [](ddphook_status_t status) {
      const std::string text = show(status);
      EXPECT_EQ(text.find("FAILED_PRECONDITION: "), 0u) << text;
      EXPECT_NE(text.find("cannot be captured in a graph"), std::string::npos)
          << text;
    };
    isRefused(ddphook_module_load(member.context, &second.compiled));
    isRefused(ddphook_module_unload(&member.module.compiled));
    isRefused(ddphook_synchronize(member.context));
    isRefused(ddphook_context_set_stream(member.context, nullptr));
    void *memory = nullptr;
    isRefused(ddphook_memory_alloc(member.context, 64, &memory));
    isRefused(ddphook_state_save(&member.module.compiled,
                                 checkpoint.pattern().c_str(), 0));
    member.enqueue(quantized);
    graph.end();
    // All of it works again, and the graph is whole.
    EXPECT_EQ(show(ddphook_module_load(member.context, &second.compiled)),
              "OK");
    const std::vector<History> expected = expectedOf(1, quantized, 2);
    expectSame(replayed(member, graph, 1, 1), expected[0], 1, "captured");
    EXPECT_EQ(show(ddphook_module_unload(&second.compiled)), "OK");
    graph.destroy();
  });
}

/// What a kernel of a graph finds wrong is told by the next wait, and the graph
/// refers to where it was found until the context is gone.
TEST_F(Capture, TellsOfWhatAReplayFinds) {
  runJob(1, [](Member &member) {
    eagerly(member, largest, 0, 1);
    std::unique_ptr<Graph> graph = member.capture(addLargest);
    graph->launch();
    ASSERT_EQ(show(ddphook_synchronize(member.context)), "OK");
    // Two equal places.
    const std::vector<int32_t> places(kKept, 7);
    char *entries = static_cast<char *>(entriesOf(member.module));
    ASSERT_EQ(show(ddphook_memory_write(
                  member.context, entries + kKept * sizeof(float),
                  places.data(), kKept * sizeof(int32_t))),
              "OK");
    graph->launch();
    for (int i = 0; i < 2; ++i)
      EXPECT_EQ(show(ddphook_synchronize(member.context)),
                "DATA_LOSS: expected ascending indices of a rank's largest "
                "elements, but got indices out of order");
    graph.reset();
  });
}

/// The host decides and counts while it captures, and not when it replays.
TEST_F(Capture, KeepsWhatTheHostHasDecided) {
  runJob(upTo(2), [](Member &member) {
    auto step = [&]() -> int64_t & {
      return *static_cast<int64_t *>(member.stateOf(member.module, 0));
    };
    eagerly(member, stochastic, 0, 1);
    ASSERT_EQ(step(), 1);
    std::unique_ptr<Graph> graph = member.capture(stochastic);
    EXPECT_EQ(step(), 2);
    const History again = replayed(member, *graph, 3, 2);
    EXPECT_EQ(step(), 2) << "a replay counted";
    // Every replay rounds as step 1 does.
    for (int i = 0; i < 2; ++i) {
      step() = 1;
      member.write(3 + i);
      member.enqueue(stochastic);
      EXPECT_TRUE(sameBits(member.result(), again[static_cast<size_t>(i)]));
    }
    step() = 5;
    member.write(3);
    member.enqueue(stochastic);
    EXPECT_FALSE(sameBits(member.result(), again[0])) << "the steps agree";
    graph.reset();
  });
}

/// Statistics count the step that was captured, and no replay.
TEST_F(Capture, IsWhatStatisticsCount) {
  runJob(upTo(2), [](Member &member) {
    auto statistics = [&] {
      ddphook_stats_t stats = {};
      stats.struct_size = sizeof(stats);
      EXPECT_EQ(show(ddphook_module_stats(&member.module.compiled, &stats)),
                "OK");
      return stats;
    };
    member.write(0);
    member.enqueue(powerSgd);
    const ddphook_stats_t one = statistics();
    std::unique_ptr<Graph> graph = member.capture(powerSgd);
    const ddphook_stats_t two = statistics();
    EXPECT_EQ(two.steps, one.steps + 1);
    EXPECT_EQ(two.wire_bytes, 2 * one.wire_bytes);
    replayed(member, *graph, 1, 2);
    EXPECT_EQ(statistics().collectives, two.collectives);
    EXPECT_EQ(statistics().wire_bytes, two.wire_bytes);
    graph.reset();
  });
}

/// A graph that is not launched any more may be destroyed after its module and
/// its context.
TEST_F(Capture, MayOutliveItsContextWithoutALaunch) {
  std::unique_ptr<Graph> graph;
  std::unique_ptr<Stream> stream;
  runJob(1, [&](Member &member) {
    eagerly(member, powerSgd, 0, 1);
    graph = member.capture(powerSgd);
    replayed(member, *graph, 1, 1);
    ASSERT_EQ(show(ddphook_context_set_stream(member.context, nullptr)), "OK");
    stream = std::move(member.stream);
  });
  EXPECT_EQ(cudaStreamSynchronize(stream->get()), cudaSuccess);
  graph.reset();
}
