//===- trace_overhead.cpp - what recording costs a step -------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Two ranks make the same steps in three contexts of their processes: one that
// records nothing, one with the flight recorder, and one with a trace. They
// take turns, so that whatever else the machine does happens to all of them
// alike. Prints the ratios to the first, of time on the clock and of processor
// time, as medians over rounds with quartiles.
//
//   ddphook-trace_overhead [ROUNDS [STEPS]]
//
//===----------------------------------------------------------------------===//
#include "job/job_test_ranks.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <sys/resource.h>

using namespace ddphook::test;

namespace {

constexpr int ranks = 2, buckets = 24;
constexpr int64_t sent = 20000, computed = 250000;
constexpr const char *names[] = {"nothing", "flight recorder", "trace"};
constexpr int variants = 3;

struct Times {
  double clock, processor;
};

Times now() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  auto seconds = [](const timeval &time) {
    return static_cast<double>(time.tv_sec) +
           static_cast<double>(time.tv_usec) * 1e-6;
  };
  return {std::chrono::duration<double>(
              std::chrono::steady_clock::now().time_since_epoch())
              .count(),
          seconds(usage.ru_utime) + seconds(usage.ru_stime)};
}

/// A step that computes while each of its collectives is in flight.
bool makeStep(TestModule &module, std::vector<float> &gradients,
              std::vector<float> &values) {
  if (ddphook_rt_enter(module.handle, 0) != DDPHOOK_OK)
    return false;
  for (int32_t i = 0; i < buckets; ++i) {
    const int64_t ticket = ddphook_rt_all_reduce_start(
        module.handle, i, gradients.data(), gradients.data());
    ddphook_rt_scale(module.handle, 1, values.data(), values.data(), computed,
                     DDPHOOK_F32);
    ddphook_rt_wait(module.handle, ticket);
  }
  return ddphook_rt_leave(module.handle) == DDPHOOK_OK;
}

/// "25 %, 50 % and 75 % of the numbers".
std::string quartiles(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  char text[64];
  std::snprintf(text, sizeof(text), "%.4f (%.4f to %.4f)",
                numbers[numbers.size() / 2], numbers[numbers.size() / 4],
                numbers[numbers.size() * 3 / 4]);
  return text;
}

/// The contexts, with a module each; destroyed in their order on all ranks.
struct Job {
  std::unique_ptr<TestModule> modules[variants];
  ddphook_context_t *contexts[variants] = {};

  std::string join(int rank, const int *ports, const std::string &trace) {
    for (int i = 0; i < variants; ++i) {
      modules[i] = std::make_unique<TestModule>(
          Collectives(buckets, TestCollective(sent, "f32", "f16", true)));
      ddphook_options_t options = jobOptions(rank, ranks, ports[i], "shm");
      if (i == 0)
        ::setenv("DDPHOOK_FLIGHT_RECORDER", "0", 1);
      else
        ::unsetenv("DDPHOOK_FLIGHT_RECORDER");
      if (i == 2)
        options.trace = trace.c_str();
      if (ddphook_context_create(&options, &contexts[i]) != DDPHOOK_OK ||
          ddphook_module_load(contexts[i], &modules[i]->compiled) != DDPHOOK_OK)
        return ddphook_last_error();
    }
    return "";
  }
  ~Job() {
    for (ddphook_context_t *context : contexts)
      ddphook_context_destroy(context);
  }
};

std::string measure(Job &job, int rank, int rounds, int steps) {
  std::vector<float> gradients(sent, 1.0f), values(computed, 1.0f);
  std::vector<double> clock[variants], processor[variants], stepTimes;
  // The first round warms up.
  for (int round = 0; round <= rounds; ++round) {
    Times taken[variants];
    for (int turn = 0; turn < variants; ++turn) {
      const int i = (turn + round) % variants;
      const Times begin = now();
      for (int step = 0; step < steps; ++step)
        if (!makeStep(*job.modules[i], gradients, values))
          return ddphook_last_error();
      const Times end = now();
      taken[i] = {end.clock - begin.clock, end.processor - begin.processor};
    }
    if (round == 0)
      continue;
    stepTimes.push_back(taken[0].clock / steps * 1e3);
    for (int i = 1; i < variants; ++i) {
      clock[i].push_back(taken[i].clock / taken[0].clock);
      processor[i].push_back(taken[i].processor /
                             std::max(taken[0].processor, 1e-6));
    }
  }
  if (rank == 0) {
    std::printf("%d rounds of %d steps, ms each with %s: %s\n", rounds, steps,
                names[0], quartiles(stepTimes).c_str());
    for (int i = 1; i < variants; ++i)
      std::printf("%s: clock %s, processor %s\n", names[i],
                  quartiles(clock[i]).c_str(), quartiles(processor[i]).c_str());
    std::fflush(stdout);
  }
  return "OK";
}

} // namespace

int main(int argc, char **argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 200;
  const int steps = argc > 2 ? std::atoi(argv[2]) : 10;
  if (argc > 3 || rounds < 1 || steps < 1) {
    std::fprintf(stderr, "usage: %s [ROUNDS [STEPS]]\n", argv[0]);
    return 2;
  }
  std::string directory =
      (std::filesystem::temp_directory_path() / "ddphook-overhead-XXXXXX")
          .string();
  if (!::mkdtemp(directory.data())) {
    std::perror(directory.c_str());
    return 1;
  }
  int ports[variants];
  for (int &port : ports)
    port = freePort();
  const auto results = runRanks(
      ranks,
      [&](int rank) {
        Job job;
        const std::string failure =
            job.join(rank, ports, directory + "/trace.json");
        return failure.empty() ? measure(job, rank, rounds, steps) : failure;
      },
      /*patience=*/3600);
  std::filesystem::remove_all(directory);
  for (const RankResult &result : results)
    if (result.text != "OK") {
      std::fprintf(stderr, "%s\n", result.text.c_str());
      return 1;
    }
  return 0;
}
