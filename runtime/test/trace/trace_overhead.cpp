// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Two ranks make the same steps in four contexts of their processes: two that
// record nothing, one with the flight recorder, and one with a trace. They
// take turns, so that whatever else the machine does happens to all of them
// alike. Prints the ratios to the first, of time on the clock and of processor
// time, as medians over rounds, with how far these can be trusted. That of the
// second one should be 1: how far it is from that is what the memory that a
// context happens to have, and the noise, are good for.
//
//   ddphook-trace_overhead [ROUNDS [STEPS [MILLISECONDS]]]
//
// A step computes so much that it takes MILLISECONDS, 5 by default, when it is
// not disturbed: rank 0 finds out how much that is, and both compute as much.
// It computes in registers, since the time of a loop over memory depends on
// where the memory and the loop lie, by more than what recording costs.

#include "job/job_test_ranks.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <sys/resource.h>

using namespace ddphook::test;

namespace {

constexpr int ranks = 2, buckets = 24;
constexpr int64_t sent = 20000;
/// Elements of a kernel: 64 KiB.
constexpr int64_t scaled = int64_t(1) << 14;
/// Sums that a program computes beside a collective: seconds.
constexpr int64_t mostSums = int64_t(1) << 32;
constexpr const char *names[] = {"nothing", "nothing again", "flight recorder",
                                 "trace"};
constexpr int variants = 4, firstRecorded = 2, traced = 3;

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

/// What ranks compute with.
struct Work {
  std::vector<float> gradients = std::vector<float>(sent, 1.0f);
  std::vector<float> values = std::vector<float>(scaled, 1.0f);
  double sum = 0;
  int64_t sums = 0; ///< Of a program, beside each collective.
};

/// One kernel of the runtime, which is recorded, and computation of a program,
/// which is not.
void compute(TestModule &module, Work &work) {
  ddphook_rt_scale(module.handle, 1, work.values.data(), work.values.data(),
                   scaled, DDPHOOK_F32);
  for (int64_t i = 0; i < work.sums; ++i)
    work.sum = work.sum * 0.5 + 0.5;
}

/// A step that computes while each of its collectives is in flight.
bool makeStep(TestModule &module, Work &work) {
  if (ddphook_rt_enter(module.handle, 0) != DDPHOOK_OK)
    return false;
  for (int32_t i = 0; i < buckets; ++i) {
    const int64_t ticket =
        ddphook_rt_collective_start(module.handle, i, work.gradients.data(),
                                    work.gradients.data(), /*step=*/0);
    compute(module, work);
    ddphook_rt_wait(module.handle, ticket);
  }
  return ddphook_rt_leave(module.handle) == DDPHOOK_OK;
}

/// The median, the interval that has it with 95 % of certainty, whatever the
/// numbers are distributed like, and the quartiles.
std::string describe(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  const auto count = static_cast<double>(numbers.size());
  auto at = [&](double place) {
    return numbers[static_cast<size_t>(std::clamp(place, 0.0, count - 1))];
  };
  // How many of them are below the median has a binomial distribution.
  const double reach = 1.96 * std::sqrt(count) / 2;
  char text[128];
  std::snprintf(
      text, sizeof(text), "%.4f (95 %%: %.4f to %.4f; quartiles: %.4f, %.4f)",
      at(count / 2), at(std::floor(count / 2 - reach)),
      at(std::ceil(count / 2 + reach)), at(count / 4), at(count * 3 / 4));
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
      if (i < firstRecorded)
        ::setenv("DDPHOOK_FLIGHT_RECORDER", "0", 1);
      else
        ::unsetenv("DDPHOOK_FLIGHT_RECORDER");
      if (i == traced)
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

/// Makes a program compute as long as a step of that time needs; the same on
/// all ranks.
std::string calibrate(Job &job, int rank, double milliseconds, Work &work) {
  constexpr int attempts = 12, tries = 8;
  // At first what collectives and kernels take by themselves.
  double least = 0;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    double fastest = 1e9;
    for (int i = 0; i < tries; ++i) {
      const Times begin = now();
      if (!makeStep(*job.modules[0], work))
        return ddphook_last_error();
      fastest = std::min(fastest, (now().clock - begin.clock) * 1e3);
    }
    double wanted = static_cast<double>(work.sums) *
                    std::clamp(milliseconds / fastest, 0.125, 8.0);
    if (attempt == 0) {
      least = fastest;
      wanted = 1000;
    }
    work.sums = static_cast<int64_t>(
        std::clamp(wanted, 0.0, static_cast<double>(mostSums)));
    // What rank 0 finds is everybody's: its steps wait for the other one.
    if (ddphook_broadcast(job.contexts[0], &work.sums, sizeof(work.sums), 0) !=
        DDPHOOK_OK)
      return ddphook_last_error();
  }
  if (rank == 0)
    std::printf(
        "%d collectives of %lld elements and as many kernels of %lld "
        "take %.2f ms; for steps of %g ms, a program computes %lld sums "
        "beside each collective\n",
        buckets, static_cast<long long>(sent), static_cast<long long>(scaled),
        least, milliseconds, static_cast<long long>(work.sums));
  return "";
}

std::string measure(Job &job, int rank, int rounds, int steps,
                    double milliseconds) {
  Work work;
  const std::string failure = calibrate(job, rank, milliseconds, work);
  if (!failure.empty())
    return failure;
  std::vector<double> clock[variants], processor[variants], stepTimes;
  // The first round warms up.
  for (int round = 0; round <= rounds; ++round) {
    Times taken[variants];
    for (int turn = 0; turn < variants; ++turn) {
      const int i = (turn + round) % variants;
      const Times begin = now();
      for (int step = 0; step < steps; ++step)
        if (!makeStep(*job.modules[i], work))
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
                names[0], describe(stepTimes).c_str());
    for (int i = 1; i < variants; ++i)
      std::printf("%s: clock %s, processor %s\n", names[i],
                  describe(clock[i]).c_str(), describe(processor[i]).c_str());
    std::fflush(stdout);
  }
  return "OK";
}

/// An argument, from `least` to `most`, or what is taken without it; 0 for
/// what is no such number.
double argument(int argc, char **argv, int place, double otherwise,
                double least, double most) {
  if (argc <= place)
    return otherwise;
  char *end = nullptr;
  const double number = std::strtod(argv[place], &end);
  return *end == '\0' && number >= least && number <= most ? number : 0;
}

} // namespace

int main(int argc, char **argv) {
  const auto rounds = static_cast<int>(argument(argc, argv, 1, 200, 1, 1e6));
  const auto steps = static_cast<int>(argument(argc, argv, 2, 10, 1, 1e6));
  const double milliseconds = argument(argc, argv, 3, 5, 0.01, 1000);
  if (argc > 4 || rounds == 0 || steps == 0 || milliseconds == 0) {
    std::fprintf(stderr,
                 "usage: %s [ROUNDS [STEPS [MILLISECONDS]]]: at least one "
                 "round and step, and steps of 0.01 to 1000 ms\n",
                 argv[0]);
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
        return failure.empty() ? measure(job, rank, rounds, steps, milliseconds)
                               : failure;
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
