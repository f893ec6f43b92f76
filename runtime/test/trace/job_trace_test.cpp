// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks as processes through the C ABI: the trace of a job that goes well, and
// faults that are put into jobs, each of which has to be named by the error, by
// the flight recorder or by metrics.

#include "trace/observed_job.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace ddphook;
using namespace ddphook::test;
using nlohmann::json;

namespace {

/// A step with collectives 0 and 1 in flight, and a kernel meanwhile.
std::string overlappedStep(TestModule &module) {
  std::vector<float> data(1000, 1.0f), other(1000, 1.0f);
  if (ddphook_rt_enter(module.handle, 0) != DDPHOOK_OK)
    return "enter";
  ddphook_rt_collective_start(module.handle, 0, data.data(), data.data(),
                              /*step=*/0);
  const int64_t last = ddphook_rt_collective_start(
      module.handle, 1, other.data(), other.data(), /*step=*/0);
  std::vector<float> sum(1 << 16), more(1 << 16);
  ddphook_rt_add(module.handle, sum.data(), sum.data(), more.data(), 1 << 16,
                 DDPHOOK_F32);
  ddphook_rt_wait(module.handle, last);
  return show(ddphook_rt_leave(module.handle));
}

/// No file may be larger, as on a full disk.
void limitFiles(rlim_t bytes) {
  const rlimit limit = {bytes, bytes};
  ::setrlimit(RLIMIT_FSIZE, &limit);
}

} // namespace

TEST(JobTrace, AHealthyJob) {
  for (const char *transport : {"shm", "gloo"}) {
    Observed job;
    job.transport = transport;
    job.variables["DDPHOOK_BACKEND_OPTIONS"] = "async_progress=always";
    const int ranks = 2, count = 20;
    expectAll(job.run(ranks, {{1000}, {1000, "f32", "f16"}},
                      [&](int, TestModule &module, ddphook_context_t *) {
                        std::string result;
                        for (int i = 0; i < count; ++i)
                          result = overlappedStep(module);
                        return result;
                      }),
              "OK");
    EXPECT_EQ(job.otherFiles(), std::vector<std::string>());
    const json trace = job.trace();
    EXPECT_TRUE(trace["ddphook"]["failures"].empty());
    std::map<std::pair<std::string, int>, std::vector<json>> sameCollective;
    for (int rank = 0; rank < ranks; ++rank) {
      std::map<std::string, int> counts;
      std::vector<json> steps;
      for (const json &event : eventsOf(trace, "X", rank)) {
        ++counts[event["cat"].get<std::string>() + " " +
                 event["name"].get<std::string>()];
        if (event["cat"] == "step")
          steps.push_back(event);
        if (event["cat"] != "collective")
          continue;
        EXPECT_EQ(event["tid"], 1);
        const json &about = event["args"];
        EXPECT_EQ(about["bucket"], "b0");
        EXPECT_EQ(about["group"], "dp");
        EXPECT_EQ(about["wire_bytes"], about["collective"] == 0 ? 4000 : 2000);
        EXPECT_LE(about["wait_us"], event["dur"]);
        sameCollective[{std::to_string(about["collective"].get<int>()),
                        about["step"].get<int>()}]
            .push_back(event);
      }
      EXPECT_EQ(counts["step step"], count);
      EXPECT_EQ(counts["collective all_reduce b0"], 2 * count);
      EXPECT_EQ(counts["kernel add"], count);
    }
    // No rank ends a collective before the last one has begun it.
    EXPECT_EQ(sameCollective.size(), 2u * count);
    for (const auto &[key, events] : sameCollective) {
      ASSERT_EQ(events.size(), 2u);
      for (int i = 0; i < 2; ++i)
        EXPECT_GE(events[i]["ts"].get<double>() +
                      events[i]["dur"].get<double>(),
                  events[1 - i]["ts"].get<double>());
    }
  }
}

TEST(JobTrace, AKilledRank) {
  Observed job;
  job.variables["DDPHOOK_FLIGHT_RECORDER"] =
      job.directory.file("flight.{rank}.json");
  const std::string part = trace::partPath(job.directory.file("trace.json"), 1);
  auto results = job.run(
      3, {{1000}}, [&](int rank, TestModule &module, ddphook_context_t *) {
        std::string result = steps(module, 5);
        if (rank == 1)
          killAfterSteps(part, 5);
        return result == "OK" ? steps(module, 5) : result;
      });
  EXPECT_EQ(results[1].signal, SIGKILL);
  for (int rank : {0, 2})
    expectContains(results[rank].text, "PEER_LOST: rank 1 was lost");
  const json trace = job.trace();
  const json &failures = trace["ddphook"]["failures"];
  ASSERT_EQ(failures.size(), 3u);
  EXPECT_EQ(failures[1]["rank"], 1);
  EXPECT_EQ(failures[1]["state"], "lost");
  expectContains(failures[1]["message"], "rank 1 was lost");
  // What it had recorded.
  int stepsOfTheLost = 0;
  for (const json &event : eventsOf(trace, "X", 1))
    stepsOfTheLost += event["cat"] == "step";
  EXPECT_EQ(stepsOfTheLost, 5);
  EXPECT_EQ(eventsOf(trace, "i", 1).size(), 1u);
  // The others' last events, with the collective that they wait in.
  EXPECT_EQ(job.otherFiles(),
            (std::vector<std::string>{"flight.0.json", "flight.2.json"}));
  const json flight = readJson(job.directory.file("flight.2.json"));
  expectContains(flight["ddphook"]["failures"][0]["message"],
                 "rank 1 was lost");
  EXPECT_GE(eventsOf(flight, "X", 2).size(), 10u);
}

namespace {

/// A job whose ranks mean other directories by one name, as on machines that
/// share none.
class Apart : public Observed {
public:
  explicit Apart(int ranks) {
    for (int rank = 0; rank < ranks; ++rank)
      std::filesystem::create_directory(directory.file(std::to_string(rank)));
    variables["DDPHOOK_TRACE"] = "/proc/self/cwd/trace.json";
    isApart = true;
  }

  /// What is left in the directory of a rank.
  std::vector<std::string> filesOf(int rank) const {
    std::vector<std::string> names;
    for (const auto &entry : std::filesystem::directory_iterator(
             directory.file(std::to_string(rank))))
      names.push_back(entry.path().filename());
    return names;
  }
  json trace() const { return readJson(directory.file("0/trace.json")); }
};

} // namespace

TEST(JobTrace, RanksThatShareNoDirectory) {
  Apart job(3);
  // The oldest events go, and no more is sent than there is.
  job.variables["DDPHOOK_TRACE_EVENTS"] = "64";
  const int count = 40;
  expectAll(job.run(3, {{1000}},
                    [](int, TestModule &module, ddphook_context_t *) {
                      return steps(module, count);
                    }),
            "OK");
  EXPECT_EQ(job.filesOf(0), std::vector<std::string>{"trace.json"});
  const json trace = job.trace();
  EXPECT_TRUE(trace["ddphook"]["failures"].empty());
  for (int rank = 0; rank < 3; ++rank) {
    if (rank > 0)
      EXPECT_TRUE(job.filesOf(rank).empty());
    EXPECT_EQ(trace["ddphook"]["ranks"][rank]["state"], "closed");
    int last = 0;
    for (const json &event : eventsOf(trace, "X", rank))
      if (event["cat"] == "step")
        last = std::max(last, event["args"]["step"].get<int>());
    EXPECT_EQ(last, count);
    EXPECT_GE(eventsOf(trace, "X", rank).size(), 60u);
    EXPECT_GT(trace["ddphook"]["ranks"][rank]["events_lost"], 0);
  }
}

TEST(JobTrace, ALostRankAmongRanksThatShareNoDirectory) {
  Apart job(3);
  auto results = job.run(3, {{1000}},
                         [](int rank, TestModule &module, ddphook_context_t *) {
                           std::string result = steps(module, 5);
                           if (rank == 2)
                             ::kill(::getpid(), SIGKILL);
                           return result == "OK" ? steps(module, 5) : result;
                         });
  for (int rank : {0, 1})
    expectContains(results[rank].text, "PEER_LOST: rank 2 was lost");
  const json trace = job.trace();
  // Those that live have told what they know; the part of the dead one stays.
  EXPECT_EQ(trace["ddphook"]["ranks"][1]["state"], "failed");
  EXPECT_EQ(trace["ddphook"]["ranks"][2]["state"], "missing");
  EXPECT_GE(eventsOf(trace, "X", 1).size(), 10u);
  EXPECT_TRUE(job.filesOf(1).empty());
  EXPECT_EQ(job.filesOf(2), std::vector<std::string>{"trace.json.rank2.part"});
}

TEST(JobTrace, PartsThatRankZeroCannotKeep) {
  for (const bool isPipe : {false, true}) {
    Apart job(2);
    const std::string place = job.directory.file("0/trace.json.rank1.part");
    // Something that no file replaces; whoever opens the pipe waits for ever.
    if (isPipe)
      ASSERT_EQ(::mkfifo(place.c_str(), 0666), 0);
    else
      std::filesystem::create_directories(place + "/full");
    expectAll(job.run(2, {{1000}},
                      [](int, TestModule &module, ddphook_context_t *) {
                        return steps(module, 3);
                      }),
              "OK");
    const json trace = job.trace();
    EXPECT_EQ(trace["ddphook"]["ranks"][0]["state"], "closed");
    EXPECT_EQ(trace["ddphook"]["ranks"][1]["state"], "missing");
  }
}

TEST(JobTrace, AStoppedRank) {
  for (const char *transport : {"shm", "gloo"}) {
    Observed job;
    job.transport = transport;
    auto results = job.run(
        3, {{1000}},
        [](int rank, TestModule &module, ddphook_context_t *) {
          std::string result = steps(module, 4);
          if (rank == 2)
            ::raise(SIGSTOP);
          return result == "OK" ? steps(module, 1) : result;
        },
        /*stoppedRank=*/2, /*timeout=*/3);
    for (int rank : {0, 1})
      expectContains(results[rank].text,
                     "rank 2 does not answer; ranks 0, 1 wait in all_reduce b0 "
                     "of step 5");
  }
}

/// Rank 0 has the store in which ranks tell each other where they are.
TEST(JobTrace, AStoppedRankZero) {
  for (const char *transport : {"shm", "gloo"}) {
    Observed job;
    job.transport = transport;
    auto results = job.run(
        3, {{1000}},
        [](int rank, TestModule &module, ddphook_context_t *) {
          std::string result = steps(module, 4);
          if (rank == 0)
            ::raise(SIGSTOP);
          return result == "OK" ? steps(module, 1) : result;
        },
        /*stoppedRank=*/0, /*timeout=*/3);
    // The first deadline to pass ends the other one's wait as well.
    bool isFirst[3] = {};
    for (int rank : {1, 2}) {
      const std::string &text = results[rank].text;
      expectContains(text, ": rank 0 does not answer");
      isFirst[rank] =
          text.find("; rank " + std::to_string(rank) +
                    " waits in all_reduce b0 of step 5") != std::string::npos;
    }
    EXPECT_TRUE(isFirst[1] || isFirst[2]) << results[1].text << "\n"
                                          << results[2].text;
  }
}

TEST(JobTrace, ARankThatComputesForTooLong) {
  Observed job;
  auto results = job.run(
      2, {{1000}},
      [](int rank, TestModule &module, ddphook_context_t *context) {
        std::string result = steps(module, 2);
        if (rank == 1 && result == "OK") {
          if (ddphook_rt_enter(module.handle, 0) != DDPHOOK_OK)
            return std::string("enter");
          while (ddphook_synchronize(context) == DDPHOOK_OK)
            sleepMs(10);
          return show(ddphook_rt_leave(module.handle));
        }
        return result == "OK" ? steps(module, 1) : result;
      },
      /*stoppedRank=*/-1, /*timeout=*/2);
  expectContains(results[0].text, "DEADLINE_EXCEEDED: ");
  expectContains(results[0].text,
                 "rank 1 is in step 3 and has not called all_reduce b0; rank 0 "
                 "waits in all_reduce b0 of step 3");
  expectContains(results[1].text, "has not called all_reduce b0");
}

TEST(JobTrace, ARankOfAPartOfTheJob) {
  Observed job;
  const std::string pairs =
      R"([{"name":"dp","size":2,"ranks":[[0,2],[1,3]],"placement":"","parent":"","topology":"flat"}])";
  const int port = freePort();
  const auto results = runRanks(
      4,
      [&](int rank) {
        TestModule module(Collectives{{1000}}, 0, pairs);
        return withModule(jobOptions(rank, 4, port, "shm", 2), module,
                          [&](ddphook_context_t *context) {
                            std::string result = steps(module, 2);
                            // Ranks 0 and 2 wait for nobody, and have ended no
                            // step more.
                            if (result != "OK" || rank == 1)
                              return result == "OK" ? steps(module, 1) : result;
                            if (ddphook_rt_enter(module.handle, 0) !=
                                DDPHOOK_OK)
                              return std::string("enter");
                            while (ddphook_synchronize(context) == DDPHOOK_OK)
                              sleepMs(10);
                            return show(ddphook_rt_leave(module.handle));
                          });
      },
      patientDeadline + 100);
  for (const RankResult &result : results)
    expectContains(result.text,
                   "rank 3 is in step 3 and has not called all_reduce b0; rank "
                   "1 waits in all_reduce b0 of step 3");
}

TEST(JobTrace, RanksWithOtherPlansAndOtherSteps) {
  // A plan of its own: before any step.
  Observed job;
  const int port = freePort();
  auto results = runRanks(2, [&](int rank) {
    TestModule module(Collectives{{rank == 0 ? 1000 : 999}});
    return withModule(jobOptions(rank, 2, port, "shm"), module,
                      [](ddphook_context_t *) { return std::string("OK"); });
  });
  for (const RankResult &result : results)
    expectContains(result.text, "collectives[0].count is 1000 on rank 0, but "
                                "999 on rank 1");
  // The same plan, but another way through it.
  results = job.run(2, {{1000}, {500}},
                    [](int rank, TestModule &module, ddphook_context_t *) {
                      std::vector<float> data(1000, 1.0f);
                      std::string result = steps(module, 3);
                      if (result != "OK" ||
                          ddphook_rt_enter(module.handle, 0) != DDPHOOK_OK)
                        return result;
                      ddphook_rt_collective(module.handle, rank, data.data(),
                                            data.data(), /*step=*/0);
                      return show(ddphook_rt_leave(module.handle));
                    });
  bool isNamed = false;
  for (const RankResult &result : results) {
    EXPECT_NE(result.text, "OK");
    isNamed |= result.text.find("to reduce") != std::string::npos;
  }
  EXPECT_TRUE(isNamed);
}

TEST(JobTrace, GradientsThatAreNotFiniteAndWhoIsWaitedFor) {
  Observed job;
  job.measure(/*interval=*/2);
  expectAll(job.run(2, {{1000}},
                    [](int rank, TestModule &module, ddphook_context_t *) {
                      std::vector<float> data(1000, 1.0f);
                      for (int i = 0; i < 5; ++i) {
                        (void)ddphook_rt_enter(module.handle, 0);
                        // The slow one.
                        if (rank == 1)
                          sleepMs(20);
                        data[7] = i == 3 ? NAN : 1;
                        ddphook_rt_is_finite(module.handle, data.data(), 1000,
                                             DDPHOOK_F32);
                        ddphook_rt_collective(module.handle, 0, data.data(),
                                              data.data(), /*step=*/0);
                        if (ddphook_rt_leave(module.handle) != DDPHOOK_OK)
                          return std::string(ddphook_last_error());
                      }
                      return std::string("OK");
                    }),
            "OK");
  for (int rank = 0; rank < 2; ++rank) {
    const std::vector<json> lines = job.metrics(rank);
    // After steps 2 and 4, and at the end.
    ASSERT_EQ(lines.size(), 3u);
    EXPECT_EQ(lines[0]["steps"], 2);
    EXPECT_EQ(lines[0]["non_finite"], 0);
    EXPECT_EQ(lines[1]["non_finite"], 1);
    EXPECT_EQ(lines[2]["steps"], 5);
    // The slow rank sleeps in its steps.
    EXPECT_GE(lines[2]["step_seconds"], rank == 1 ? 5 * 0.020 : 0);
    EXPECT_EQ(lines[2]["wire_bytes"], 20000);
    EXPECT_EQ(lines[2]["compression_ratio"], 1);
    const json &bucket = lines[2]["buckets"][0];
    EXPECT_EQ(bucket["bucket"], "b0");
    EXPECT_EQ(bucket["collectives"], 5);
    // Rank 0 waits for rank 1 in each step.
    if (rank == 0) {
      EXPECT_GT(bucket["waiting_seconds"], 5 * 0.010);
    }
  }
}

TEST(JobTrace, FilesOfRanksWithoutAPlaceForTheirNumbers) {
  Observed job;
  job.variables = {{"DDPHOOK_METRICS", "m.prom"},
                   {"DDPHOOK_METRICS_INTERVAL", "1"}};
  TemporaryDirectory other;
  // Relative to where the job began.
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(job.directory.path);
  expectAll(job.run(2, {{1000}},
                    [&](int, TestModule &module, ddphook_context_t *) {
                      std::filesystem::current_path(other.path);
                      return steps(module, 2);
                    }),
            "OK");
  std::filesystem::current_path(before);
  EXPECT_EQ(job.otherFiles(),
            (std::vector<std::string>{"m.rank0.prom", "m.rank1.prom"}));
  EXPECT_TRUE(std::filesystem::is_empty(other.path));
  for (int rank = 0; rank < 2; ++rank) {
    const std::string number = std::to_string(rank);
    std::stringstream content;
    content << std::ifstream(job.directory.file("m.rank" + number + ".prom"))
                   .rdbuf();
    expectContains(content.str(), "ddphook_steps_total{rank=\"" + number +
                                      "\",module=\"0\"} 2\n");
  }
}

TEST(JobTrace, EachContextOfAProcessHasFilesOfItsOwn) {
  Observed job;
  job.variables["DDPHOOK_METRICS"] = job.directory.file("m.prom");
  job.variables["DDPHOOK_METRICS_INTERVAL"] = "1";
  const int port = freePort();
  // The second context begins while the first one makes steps.
  expectAll(
      job.run(2, {{1000}},
              [&](int rank, TestModule &module, ddphook_context_t *) {
                if (std::string result = steps(module, 2); result != "OK")
                  return result;
                TestModule second(Collectives{{1000}});
                std::string result = withModule(
                    jobOptions(rank, 2, port, "shm", patientDeadline), second,
                    [&](ddphook_context_t *) { return steps(second, 3); });
                if (result != "OK")
                  return "the second context: " + result;
                return steps(module, 2);
              }),
      "OK");
  EXPECT_EQ(job.otherFiles(),
            (std::vector<std::string>{"m.2.rank0.prom", "m.2.rank1.prom",
                                      "m.rank0.prom", "m.rank1.prom",
                                      "trace.2.json"}));
  for (const auto &[name, steps] : std::map<std::string, std::string>{
           {"m.rank1.prom", "rank=\"1\",module=\"0\"} 4\n"},
           {"m.2.rank1.prom", "rank=\"1\",module=\"0\",context=\"2\"} 3\n"}}) {
    std::stringstream content;
    content << std::ifstream(job.directory.file(name)).rdbuf();
    expectContains(content.str(), "ddphook_steps_total{" + steps);
  }
}

/// What a job of two ranks says that makes steps as if nothing were.
static std::string complaints(Observed &job, rlim_t mostBytes = RLIM_INFINITY) {
  testing::internal::CaptureStderr();
  expectAll(job.run(2, {{1000}},
                    [&](int rank, TestModule &module, ddphook_context_t *) {
                      if (mostBytes == RLIM_INFINITY)
                        return steps(module, 3);
                      std::string result = steps(module, 20);
                      waitForPart(trace::partPath(
                                      job.directory.file("trace.json"), rank),
                                  [](const trace::PartContents &part) {
                                    return part.threads[0].events.size() >= 20;
                                  });
                      limitFiles(mostBytes);
                      return result == "OK" ? steps(module, 3) : result;
                    }),
            "OK");
  return testing::internal::GetCapturedStderr();
}

TEST(JobTrace, PlacesThatCannotBeWrittenFailNoStep) {
  Observed job;
  for (const std::string place : {"/missing/x", "/proc/x"}) {
    for (const char *name : {"TRACE", "METRICS", "FLIGHT_RECORDER"})
      job.variables[std::string("DDPHOOK_") + name] = place + name;
    job.variables["DDPHOOK_METRICS_INTERVAL"] = "1";
    const std::string said = complaints(job);
    for (const std::string rank : {"0", "1"}) {
      expectContains(said, "rank " + rank +
                               " writes no trace: cannot create '" + place +
                               "TRACE.rank" + rank + ".part'");
      expectContains(said, "metrics of rank " + rank +
                               " are no longer written: cannot open '" + place +
                               "METRICS.rank" + rank + "'");
    }
  }
}

TEST(JobTrace, AFullDiskFailsNoStep) {
  Observed job;
  job.measure(/*interval=*/1);
  // When the parts are merged.
  std::string said = complaints(job, /*mostBytes=*/1024);
  expectContains(said, "the trace cannot be written, its parts stay: ");
  for (const std::string rank : {"0", "1"})
    expectContains(said, "metrics of rank " + rank +
                             " are no longer written: cannot write '" +
                             job.directory.file("m." + rank) + "'");
  EXPECT_EQ(job.otherFiles(),
            (std::vector<std::string>{"m.0", "m.1", "trace.json.rank0.part",
                                      "trace.json.rank1.part"}));
  // From the beginning on. Shared memory would be a file, too.
  Observed none;
  none.transport = "gloo";
  none.prepare = [] { limitFiles(1024); };
  said = complaints(none);
  for (const std::string rank : {"0", "1"})
    expectContains(said, "rank " + rank + " writes no trace: ");
  EXPECT_EQ(none.otherFiles(), std::vector<std::string>());
}

TEST(JobTrace, SwitchedOffThereIsNothing) {
  Observed job;
  job.variables = {{"DDPHOOK_FLIGHT_RECORDER", "0"}};
  auto results = job.run(
      2, {{1000}},
      [](int rank, TestModule &module, ddphook_context_t *) {
        std::string result = steps(module, 3);
        if (rank == 1)
          ::raise(SIGSTOP);
        return result == "OK" ? steps(module, 1) : result;
      },
      /*stoppedRank=*/1, /*timeout=*/2);
  expectContains(results[0].text, "DEADLINE_EXCEEDED: ");
  EXPECT_EQ(results[0].text.find("wait in"), std::string::npos);
  EXPECT_EQ(results[0].text.find("does not answer;"), std::string::npos);
  EXPECT_TRUE(job.otherFiles().empty());
}
