// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Steps of processes into which a profiler has loaded itself
// (range_recorder.c), on the host and on an emulated GPU; and of one without.

#include "job/job_test_ranks.h"
#include "trace/trace_test_util.h"

#include <sstream>

using namespace ddphook;
using namespace ddphook::test;

namespace {

/// A range that ended: its thread, how many are around it, and its name.
struct Range {
  std::string thread;
  size_t depth;
  std::string name;
};

/// The ranges of a file, in the order in which they began. None may be open.
std::vector<Range> readRanges(const std::string &path) {
  std::vector<Range> ranges;
  std::map<std::string, size_t> depths;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string thread, what, domain, name;
    words >> thread >> what >> domain >> std::ws;
    std::getline(words, name);
    EXPECT_EQ(domain, "ddphook") << line;
    size_t &depth = depths[thread];
    if (what == "push")
      ranges.push_back({thread, depth++, name});
    else if (depth-- == 0)
      ADD_FAILURE() << line;
  }
  for (const auto &[thread, depth] : depths)
    EXPECT_EQ(depth, 0u);
  return ranges;
}

/// Two steps on that backend, each with a kernel and two collectives, of which
/// the first is in flight meanwhile.
std::string run(const char *backend) {
  TestModule module(Collectives{{1000}, {1000, "f32", "f16"}});
  std::string plan = module.plan;
  const std::string memory = R"("memory":"host")";
  plan.replace(plan.find(memory), memory.size(), R"("memory":"device")");
  module.setPlan(plan);
  ddphook_options_t place = jobOptions(0, 1, 0, "auto", patientDeadline);
  place.backend = backend;
  return withModule(place, module, [&](ddphook_context_t *context) {
    void *data = nullptr;
    (void)ddphook_memory_alloc(context, 4000, &data);
    std::string result = "no step";
    for (int i = 0; i < 2; ++i) {
      (void)ddphook_rt_enter(module.handle, 0);
      const int64_t ticket =
          ddphook_rt_collective_start(module.handle, 0, data, data, /*step=*/0);
      ddphook_rt_wait(module.handle, ticket);
      ddphook_rt_add(module.handle, data, data, data, 1000, DDPHOOK_F32);
      ddphook_rt_collective(module.handle, 1, data, data, /*step=*/0);
      result = show(ddphook_rt_leave(module.handle));
    }
    ddphook_memory_free(context, data, 4000);
    return result;
  });
}

} // namespace

TEST(Ranges, OfStepsCallsAndCollectives) {
  for (const char *backend : {"host", "cuda_emulated"}) {
    TemporaryDirectory directory;
    const std::string path = directory.file("ranges");
    expectAll(runRanks(1,
                       [&](int) {
                         ::setenv("DDPHOOK_TEST_RANGES", path.c_str(), 1);
                         ::setenv("NVTX_INJECTION64_PATH",
                                  DDPHOOK_TEST_RANGE_RECORDER, 1);
                         return run(backend);
                       }),
              "OK");
    const std::vector<Range> ranges = readRanges(path);
    ASSERT_FALSE(ranges.empty());
    EXPECT_EQ(ranges[0].name, "step");
    // What the thread of steps does is in a step; the host's other one runs
    // collectives.
    std::map<std::string, int> counts;
    for (const Range &range : ranges) {
      if (range.thread != ranges[0].thread) {
        EXPECT_EQ(range.name, "all_reduce b0");
        continue;
      }
      ++counts[range.name];
      EXPECT_EQ(range.depth == 0, range.name == "step") << range.name;
    }
    // Each step waits for what it has started once more at its end.
    EXPECT_EQ(counts, (std::map<std::string, int>{{"step", 2},
                                                  {"add", 2},
                                                  {"all_reduce b0", 4},
                                                  {"wait all_reduce b0", 4}}))
        << backend;
  }
}

TEST(Ranges, WithoutAProfilerThereAreNone) {
  TemporaryDirectory directory;
  const std::string path = directory.file("ranges");
  expectAll(runRanks(1,
                     [&](int) {
                       ::setenv("DDPHOOK_TEST_RANGES", path.c_str(), 1);
                       return run("host");
                     }),
            "OK");
  EXPECT_FALSE(std::filesystem::exists(path));
  // Nor with one that is not there.
  expectAll(runRanks(1,
                     [&](int) {
                       ::setenv("NVTX_INJECTION64_PATH", "/missing", 1);
                       return run("host");
                     }),
            "OK");
}
