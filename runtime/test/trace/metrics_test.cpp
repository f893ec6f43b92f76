// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Both formats, names that do harm, and files that are replaced or added to.
// What jobs write is in job_trace_test.cpp.

#include "trace/metrics.h"
#include "trace/trace_test_util.h"

#include <cmath>
#include <sstream>
#include <sys/resource.h>
#include <sys/stat.h>

using namespace ddphook;
using namespace ddphook::test;
using namespace ddphook::trace;

static MetricsSample makeSample(uint64_t steps) {
  MetricsSample sample;
  sample.module = 3;
  sample.stats.steps = steps;
  sample.stats.collectives = 2 * steps;
  sample.stats.wire_bytes = 500;
  sample.stats.uncompressed_bytes = 2000;
  sample.stepTime = 2500000000;
  sample.nonFinite = 1;
  sample.buckets = {{"b0", 7, 3000000000, 1000000000, 0.125, 4},
                    {"\"b\\\n1\xff", 1, 10, 0, std::nullopt, {}},
                    {"b2", 0, 0, 0, NAN, {}}};
  sample.errors = {{"b0.error", 0.25}, {"b1.error", INFINITY}};
  return sample;
}

TEST(Metrics, LinesOfJson) {
  const auto line =
      nlohmann::json::parse(toJsonLine("a \"run\"", 5, 1.25, makeSample(10)));
  EXPECT_EQ(line["time"], 1.25);
  EXPECT_EQ(line["run_id"], "a \"run\"");
  EXPECT_EQ(line["rank"], 5);
  EXPECT_EQ(line["module"], 3);
  EXPECT_EQ(line["steps"], 10);
  EXPECT_EQ(line["step_seconds"], 2.5);
  EXPECT_EQ(line["collectives"], 20);
  EXPECT_EQ(line["wire_bytes"], 500);
  EXPECT_EQ(line["uncompressed_bytes"], 2000);
  EXPECT_EQ(line["compression_ratio"], 4);
  EXPECT_EQ(line["non_finite"], 1);
  ASSERT_EQ(line["buckets"].size(), 3u);
  EXPECT_EQ(line["buckets"][0]["bucket"], "b0");
  EXPECT_EQ(line["buckets"][0]["collectives"], 7);
  EXPECT_EQ(line["buckets"][0]["waiting_seconds"], 1);
  EXPECT_EQ(line["buckets"][0]["moving_seconds"], 2);
  EXPECT_EQ(line["buckets"][1]["bucket"], "\"b\\\n1\xef\xbf\xbd");
  EXPECT_EQ(line["buckets"][1]["moving_seconds"], 1e-8);
  EXPECT_EQ(line["buckets"][0]["relative_error"], 0.125);
  EXPECT_FALSE(line["buckets"][1].contains("relative_error"));
  EXPECT_EQ(line["buckets"][0]["non_finite"], 4);
  EXPECT_FALSE(line["buckets"][1].contains("non_finite"));
  EXPECT_TRUE(line["buckets"][2]["relative_error"].is_null());
  EXPECT_EQ(line["error_feedback"][0]["state"], "b0.error");
  EXPECT_EQ(line["error_feedback"][0]["norm"], 0.25);
  EXPECT_TRUE(line["error_feedback"][1]["norm"].is_null());
  // Nothing sent: nothing divided by.
  EXPECT_EQ(
      nlohmann::json::parse(toJsonLine("", 0, 0, {}))["compression_ratio"], 1);
}

TEST(Metrics, TextForPrometheus) {
  const std::string text = toPrometheus(1, {{3, makeSample(10)}});
  for (const char *line :
       {"# TYPE ddphook_steps_total counter",
        "ddphook_steps_total{rank=\"1\",module=\"3\"} 10",
        "ddphook_step_seconds_total{rank=\"1\",module=\"3\"} 2.5",
        "ddphook_compression_ratio{rank=\"1\",module=\"3\"} 4",
        "ddphook_waiting_seconds_total{rank=\"1\",module=\"3\",bucket=\"b0\"} "
        "1",
        "ddphook_moving_seconds_total{rank=\"1\",module=\"3\",bucket=\"b0\"} 2",
        "bucket=\"\\\"b\\\\\\n1\xff\"} 1e-08",
        "ddphook_compression_relative_error{rank=\"1\",module=\"3\",bucket="
        "\"b0\"} "
        "0.125",
        "ddphook_compression_relative_error{rank=\"1\",module=\"3\",bucket="
        "\"b2\"} "
        "NaN",
        "ddphook_bucket_non_finite_total{rank=\"1\",module=\"3\",bucket="
        "\"b0\"} 4",
        "ddphook_error_feedback_norm{rank=\"1\",module=\"3\",state=\"b0."
        "error\"} "
        "0.25",
        "ddphook_error_feedback_norm{rank=\"1\",module=\"3\",state=\"b1."
        "error\"} "
        "+Inf"})
    expectContains(text, std::string(line) + "\n");
  // What was not measured has no value, and where nothing was, no metric.
  EXPECT_EQ(text.find("error{rank=\"1\",module=\"3\",bucket=\"\\\"b"),
            std::string::npos);
  EXPECT_EQ(toPrometheus(1, {{3, MetricsSample{}}}).find("relative_error"),
            std::string::npos);
  // Another context of the process may not have the same labels.
  expectContains(
      toPrometheus(1, {{3, makeSample(10)}}, 1),
      "ddphook_steps_total{rank=\"1\",module=\"3\",context=\"2\"} 10\n");
  // A name, labels and a number; or a comment.
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    EXPECT_EQ(line.rfind("# ", 0) == 0 || line.rfind("ddphook_", 0) == 0, true)
        << line;
}

TEST(Metrics, FilesOfARun) {
  TemporaryDirectory directory;
  const std::string path = directory.file("m.jsonl");
  std::ofstream(path) << "of another run\n";
  MetricsFile lines;
  EXPECT_FALSE(lines.isOpen());
  lines.open(path, "run", 0);
  lines.write(makeSample(10));
  lines.write(makeSample(20));
  std::ifstream file(path);
  std::vector<int> steps;
  for (std::string line; std::getline(file, line);)
    steps.push_back(nlohmann::json::parse(line)["steps"]);
  EXPECT_EQ(steps, (std::vector<int>{10, 20}));

  const std::string text = directory.file("m.prom");
  MetricsFile prometheus;
  prometheus.open(text, "run", 0);
  prometheus.write(makeSample(10));
  MetricsSample other = makeSample(30);
  other.module = 4;
  prometheus.write(other);
  std::stringstream content;
  content << std::ifstream(text).rdbuf();
  expectContains(content.str(), "module=\"3\"} 10\n");
  expectContains(content.str(), "module=\"4\"} 30\n");

  testing::internal::CaptureStderr();
  MetricsFile full;
  full.open("/dev/full", "run", 0);
  full.write(makeSample(1));
  EXPECT_FALSE(full.isOpen());
  expectContains(testing::internal::GetCapturedStderr(),
                 "metrics of rank 0 are no longer written: cannot write "
                 "'/dev/full': not a regular file");
}

TEST(Metrics, ALineForWhichThereIsNoRoom) {
  TemporaryDirectory directory;
  const std::string path = directory.file("m.jsonl");
  MetricsFile lines;
  lines.open(path, "run", 0);
  lines.write(makeSample(10));
  // Room for a part of the next line.
  rlimit old;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit small = {std::filesystem::file_size(path) + 30, old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  testing::internal::CaptureStderr();
  lines.write(makeSample(20));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  expectContains(testing::internal::GetCapturedStderr(),
                 "metrics of rank 0 are no longer written: cannot write '" +
                     path + "'");
  EXPECT_FALSE(lines.isOpen());
  EXPECT_EQ(readJson(path)["steps"], 10);
}

TEST(Metrics, APipeThatNobodyReads) {
  TemporaryDirectory directory;
  const std::string path = directory.file("pipe");
  ASSERT_EQ(::mkfifo(path.c_str(), 0666), 0);
  MetricsFile lines;
  lines.open(path, "run", 0);
  testing::internal::CaptureStderr();
  lines.write(makeSample(10));
  expectContains(testing::internal::GetCapturedStderr(),
                 "metrics of rank 0 are no longer written: cannot open '" +
                     path + "': No such device or address");
}
