// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each fault has to be named by the error, the trace or metrics: the part of
// the tables of faults in docs/faults.md that job_trace_test.cpp does not have.

#include "trace/observed_job.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace ddphook;
using namespace ddphook::test;
using nlohmann::json;

/// Bytes that a call sends after a millisecond; 0: all, at once.
static std::atomic<size_t> slowBytes{0};

/// The C library's, for the transport over TCP, as on a slow link.
extern "C" ssize_t sendmsg(int socket, const msghdr *message, int flags) {
  msghdr sent = *message;
  iovec first = {};
  const size_t most = slowBytes;
  if (most > 0 && message->msg_iovlen > 0) {
    sleepMs(1);
    first = {message->msg_iov[0].iov_base,
             std::min(message->msg_iov[0].iov_len, most)};
    sent.msg_iov = &first;
    sent.msg_iovlen = 1;
  }
  return ::syscall(SYS_sendmsg, socket, &sent, flags);
}

namespace {

/// The metrics of bucket b0 in a line.
const json &bucketOf(const json &line) { return line["buckets"][0]; }

/// A step of two ranks with one collective, for which rank 0 has ones.
void stepWith(Observed &job, const TestCollective &collective,
              const std::vector<float> &gradients) {
  expectAll(job.run(2, {collective},
                    [&](int rank, TestModule &module, ddphook_context_t *) {
                      std::vector<float> data = gradients;
                      if (rank == 0)
                        std::fill(data.begin(), data.end(), 1.0f);
                      return step(module, data);
                    }),
            "OK");
}

} // namespace

TEST(Faults, ASlowLink) {
  Observed job;
  job.transport = "gloo";
  job.measure(/*interval=*/1);
  const int count = 200000;
  expectAll(job.run(2, {{count}},
                    [](int rank, TestModule &module, ddphook_context_t *) {
                      std::vector<float> data(count, 1.0f);
                      slowBytes = rank == 1 ? 10000 : 0;
                      std::string result = step(module, data);
                      slowBytes = 0;
                      return result;
                    }),
            "OK");
  // Half of the array twice, in parts that take at least a millisecond each.
  const json bucket = bucketOf(job.metrics(0)[0]);
  EXPECT_GT(bucket["moving_seconds"], 0.05) << bucket;
}

TEST(Faults, AnInfiniteGradientThatAHookDoesNotLookFor) {
  Observed job;
  job.measure(/*interval=*/1);
  job.variables["DDPHOOK_METRICS_NON_FINITE"] = "1";
  std::vector<float> gradients(1000, 1.0f);
  gradients[500] = -std::numeric_limits<float>::infinity();
  stepWith(job, {1000, "f32", "", true, 0, "i8", 256}, gradients);
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_EQ(bucketOf(job.metrics(rank)[0])["non_finite"], rank);
}

TEST(Faults, AGradientThatIsTooLargeForItsWireType) {
  Observed job;
  job.measure(/*interval=*/1);
  job.variables["DDPHOOK_METRICS_ERRORS"] = "1";
  std::vector<float> gradients(1000, 1.0f);
  gradients[500] = 1e6f;
  stepWith(job, {1000, "f32", "f16", true}, gradients);
  EXPECT_EQ(bucketOf(job.metrics(0)[0])["relative_error"], 0);
  EXPECT_TRUE(bucketOf(job.metrics(1)[0])["relative_error"].is_null());
}

TEST(Faults, GradientsThatAreTooSmallForTheirWireType) {
  Observed job;
  job.measure(/*interval=*/1);
  job.variables["DDPHOOK_METRICS_ERRORS"] = "1";
  stepWith(job, {1000, "f32", "f16", true}, std::vector<float>(1000, 1e-9f));
  EXPECT_EQ(bucketOf(job.metrics(0)[0])["relative_error"], 0);
  EXPECT_EQ(bucketOf(job.metrics(1)[0])["relative_error"], 1);
}

TEST(Faults, ARankThatWaitsForSomethingElse) {
  Observed job;
  const auto results = job.run(
      2, {{1000}},
      [](int rank, TestModule &module, ddphook_context_t *context) {
        std::string result = steps(module, 2);
        if (rank == 1 && result == "OK") {
          // The first deadline that passes is the one of rank 0.
          sleepMs(1500);
          return show(ddphook_barrier(context));
        }
        return result == "OK" ? steps(module, 1) : result;
      },
      /*stoppedRank=*/-1, /*timeout=*/2);
  expectContains(results[0].text,
                 "rank 1 is in step 2 and has not called all_reduce b0; rank 0 "
                 "waits in all_reduce b0 of step 3");
}

TEST(Faults, ModulesInOtherOrders) {
  Observed job;
  const auto results = job.run(
      2, {{1000}},
      [](int rank, TestModule &module, ddphook_context_t *context) {
        TestModule second(Collectives{{1000}});
        if (ddphook_module_load(context, &second.compiled) != DDPHOOK_OK)
          return std::string("load");
        std::string result = steps(module, 2);
        if (result == "OK")
          result = steps(rank == 0 ? module : second, 1);
        ddphook_module_unload(&second.compiled);
        return result;
      },
      /*stoppedRank=*/-1, /*timeout=*/2);
  for (const RankResult &result : results)
    expectContains(result.text,
                   "the ranks wait in different collectives: rank 0 in "
                   "all_reduce b0 of module 0 (@step), rank 1 in all_reduce b0 "
                   "of module 1 (@step)");
}

TEST(Faults, ARankThatLeavesEarly) {
  Observed job;
  const auto results = job.run(
      3, {{1000}}, [](int rank, TestModule &module, ddphook_context_t *) {
        return steps(module, rank == 1 ? 3 : 4);
      });
  EXPECT_EQ(results[1].text, "OK");
  const json failures = job.trace()["ddphook"]["failures"];
  ASSERT_EQ(failures.size(), 2u);
  for (int rank : {0, 2})
    expectContains(results[rank].text, "rank 1 left the group");
  for (const json &failure : failures)
    expectContains(failure["message"], "rank 1 left the group");
}

TEST(Faults, ARankThatFails) {
  Observed job;
  const auto results = job.run(
      3, {{1000}}, [](int rank, TestModule &module, ddphook_context_t *) {
        std::string result = steps(module, 3);
        std::vector<float> data(1000, 1.0f);
        if (rank != 1 || result != "OK")
          return result == "OK" ? steps(module, 1) : result;
        if (ddphook_rt_enter(module.handle, 0) != DDPHOOK_OK)
          return std::string("enter");
        ddphook_rt_collective(module.handle, 7, data.data(), data.data(),
                              /*step=*/0);
        return show(ddphook_rt_leave(module.handle));
      });
  const std::string cause = "expected one of 1 collectives, but got 7";
  for (const RankResult &result : results)
    expectContains(result.text, cause);
  for (int rank : {0, 2})
    expectContains(results[rank].text, "ABORTED: rank 1 failed: ");
  const json failures = job.trace()["ddphook"]["failures"];
  ASSERT_EQ(failures.size(), 3u);
  for (const json &failure : failures)
    expectContains(failure["message"], cause);
}

TEST(Faults, RankZeroIsKilled) {
  Observed job;
  const std::string path = job.directory.file("trace.json");
  const auto results = job.run(
      3, {{1000}}, [&](int rank, TestModule &module, ddphook_context_t *) {
        std::string result = steps(module, 3);
        if (rank == 0)
          killAfterSteps(trace::partPath(path, 0), 3);
        return result == "OK" ? steps(module, 1) : result;
      });
  for (int rank : {1, 2})
    expectContains(results[rank].text, "PEER_LOST: rank 0 was lost");
  // Nobody has merged the parts: as ddphook-trace does.
  EXPECT_FALSE(std::filesystem::exists(path));
  trace::MergeResult merged;
  ASSERT_EQ(show(trace::mergeParts(trace::findParts(path), "", path, &merged)),
            "OK");
  const json trace = job.trace();
  EXPECT_EQ(trace["ddphook"]["ranks"][0]["state"], "lost");
  expectContains(trace["ddphook"]["failures"][0]["message"], "rank 0 was lost");
  for (int rank = 0; rank < 3; ++rank) {
    int count = 0;
    for (const json &event : eventsOf(trace, "X", rank))
      count += event["cat"] == "step" && !event["args"].contains("unfinished");
    // The others may leave the step that failed, or not.
    EXPECT_GE(count, 3) << rank;
    EXPECT_LE(count, rank == 0 ? 3 : 4) << rank;
  }
}

// One thread hears of a failure and takes its time to say so to the device;
// another one has its error already, and ends the context.
TEST(Faults, AFailureThatIsBookedWhileTheContextEnds) {
  TemporaryDirectory directory;
  const std::string path = directory.file("trace.json");
  const int port = freePort();
  const auto results = runRanks(
      2,
      [&](int rank) -> std::string {
        ::setenv("DDPHOOK_TRACE", path.c_str(), 1);
        ::setenv("DDPHOOK_BACKEND", "guarded", 1);
        ::setenv("DDPHOOK_BACKEND_OPTIONS", "abort_ms=500", 1);
        ddphook_options_t options =
            jobOptions(rank, 2, port, "shm", patientDeadline);
        ddphook_context_t *context = nullptr;
        ddphook_status_t status = ddphook_context_create(&options, &context);
        if (status != DDPHOOK_OK)
          return "create " + show(status);
        if (rank == 1)
          ::kill(::getpid(), SIGKILL);
        while (status == DDPHOOK_OK)
          status = ddphook_barrier(context);
        const std::string text = show(status);
        ddphook_context_destroy(context);
        return text;
      },
      patientDeadline + 100);
  expectContains(results[0].text, "PEER_LOST: rank 1 was lost");
  const json trace = readJson(path);
  EXPECT_EQ(trace["ddphook"]["ranks"][0]["state"], "failed");
  EXPECT_EQ(trace["ddphook"]["ranks"][1]["state"], "lost");
  for (const json &failure : trace["ddphook"]["failures"])
    expectContains(failure["message"], "rank 1 was lost");
}

TEST(Faults, APartThatIsDamagedWhileTheJobRuns) {
  Observed job;
  testing::internal::CaptureStderr();
  expectAll(job.run(2, {{1000}},
                    [&](int rank, TestModule &module, ddphook_context_t *) {
                      std::string result = steps(module, 3);
                      // Of the file, not of what is mapped from it.
                      const std::string part =
                          trace::partPath(job.directory.file("trace.json"), 1);
                      if (rank == 1) {
                        ::unlink(part.c_str());
                        std::ofstream(part) << "garbage";
                      }
                      return result;
                    }),
            "OK");
  const std::string said = testing::internal::GetCapturedStderr();
  expectContains(said, "trace.json' is not complete: ");
  expectContains(said, "rank1.part");
  const json trace = job.trace();
  EXPECT_EQ(trace["ddphook"]["ranks"][0]["state"], "closed");
  EXPECT_EQ(trace["ddphook"]["ranks"][1]["state"], "missing");
}

TEST(Faults, APartThatIsTruncatedWhileTheJobRuns) {
  Observed job;
  testing::internal::CaptureStderr();
  expectAll(job.run(2, {{1000}},
                    [&](int rank, TestModule &module, ddphook_context_t *) {
                      std::string result = steps(module, 3);
                      const std::string part = trace::partPath(
                          job.directory.file("trace.json"), rank);
                      if (::truncate(part.c_str(), 0) != 0)
                        return std::string("truncate");
                      return result == "OK" ? steps(module, 3) : result;
                    }),
            "OK");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  const json trace = job.trace();
  for (int rank : {0, 1}) {
    EXPECT_EQ(trace["ddphook"]["ranks"][rank]["state"], "closed");
    int count = 0;
    for (const json &event : eventsOf(trace, "X", rank))
      count += event["cat"] == "step";
    EXPECT_EQ(count, 6);
  }
}

TEST(Faults, ALinkInPlaceOfMetrics) {
  Observed job;
  job.measure(/*interval=*/1);
  const std::string target = job.directory.file("precious");
  for (int rank : {0, 1}) {
    const std::string place = job.directory.file("m." + std::to_string(rank));
    std::ofstream(target) << "precious";
    if (rank == 0)
      std::filesystem::create_symlink(target, place);
    else
      std::filesystem::create_hard_link(target, place);
  }
  testing::internal::CaptureStderr();
  expectAll(job.run(2, {{1000}},
                    [](int, TestModule &module, ddphook_context_t *) {
                      return steps(module, 3);
                    }),
            "OK");
  const std::string said = testing::internal::GetCapturedStderr();
  expectContains(said, "m.0': it is a symbolic link");
  expectContains(said, "m.1': it is a hard link");
  std::string text;
  std::getline(std::ifstream(target), text);
  EXPECT_EQ(text, "precious");
}

TEST(Faults, AnotherJobThatWritesItsTraceToTheSamePlace) {
  Observed job;
  testing::internal::CaptureStderr();
  expectAll(
      job.run(2, {{1000}},
              [&](int rank, TestModule &module, ddphook_context_t *) {
                std::string result = steps(module, 3);
                trace::PartIdentity other;
                other.rank = rank;
                other.worldSize = 2;
                other.runId = "another run";
                std::unique_ptr<trace::RankRecording> part;
                Status status = trace::RankRecording::create(
                    other, 16,
                    trace::partPath(job.directory.file("trace.json"), rank),
                    &part);
                return status.isOk() ? result : status.message();
              }),
      "OK");
  const std::string said = testing::internal::GetCapturedStderr();
  expectContains(said, "trace.json' is lost, because another job writes its "
                       "trace there: ");
  // What belongs to the other job is left to it.
  EXPECT_EQ(job.otherFiles(),
            (std::vector<std::string>{"trace.json.rank0.part",
                                      "trace.json.rank1.part"}));
}
