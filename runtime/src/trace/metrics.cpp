// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "trace/metrics.h"

#include "base/log.h"
#include "base/write_signals.h"
#include "files/atomic_file.h"
#include "files/json.h"
#include "files/open_file.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

using namespace ddphook;
using namespace ddphook::trace;

static constexpr double nanoseconds = 1e-9;

bool trace::isForPrometheus(std::string_view path) {
  return path.size() >= prometheusSuffix.size() &&
         path.substr(path.size() - prometheusSuffix.size()) == prometheusSuffix;
}

/// Prints a finite number so that both formats can read it.
static std::string print(double number) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.9g", number);
  return text;
}
static std::string print(uint64_t number) { return std::to_string(number); }

/// Prints a number for JSON, which has only finite numbers.
static std::string printForJson(double number) {
  return std::isfinite(number) ? print(number) : "null";
}

/// Prints a number that is at least 0, or NaN.
static std::string printForPrometheus(double number) {
  return std::isfinite(number) ? print(number)
         : std::isnan(number)  ? "NaN"
                               : "+Inf";
}

static double ratioOf(const ddphook_stats_t &stats) {
  return stats.wire_bytes == 0 ? 1
                               : static_cast<double>(stats.uncompressed_bytes) /
                                     static_cast<double>(stats.wire_bytes);
}

std::string trace::toJsonLine(const std::string &runId, int rank, double time,
                              const MetricsSample &sample) {
  const ddphook_stats_t &stats = sample.stats;
  char seconds[32];
  std::snprintf(seconds, sizeof(seconds), "%.3f", time);
  std::string json = std::string("{\"time\":") + seconds + ",\"run_id\":";
  appendJsonText(&json, runId, /*isRepaired=*/true);
  auto add = [&json](const char *key, const std::string &number) {
    (((json += ",\"") += key) += "\":") += number;
  };
  add("rank", std::to_string(rank));
  add("module", std::to_string(sample.module));
  add("steps", print(stats.steps));
  add("step_seconds",
      print(static_cast<double>(sample.stepTime) * nanoseconds));
  add("collectives", print(stats.collectives));
  add("wire_bytes", print(stats.wire_bytes));
  add("uncompressed_bytes", print(stats.uncompressed_bytes));
  add("compression_ratio", print(ratioOf(stats)));
  add("non_finite", print(sample.nonFinite));
  json += ",\"buckets\":[";
  for (const BucketSample &bucket : sample.buckets) {
    json +=
        &bucket == &sample.buckets.front() ? "{\"bucket\":" : ",{\"bucket\":";
    appendJsonText(&json, bucket.bucket, /*isRepaired=*/true);
    add("collectives", std::to_string(bucket.collectives));
    add("waiting_seconds",
        print(static_cast<double>(bucket.waited) * nanoseconds));
    add("moving_seconds",
        print(static_cast<double>(bucket.total - bucket.waited) * nanoseconds));
    if (bucket.nonFinite)
      add("non_finite", print(*bucket.nonFinite));
    if (bucket.relativeError)
      add("relative_error", printForJson(*bucket.relativeError));
    json += '}';
  }
  json += ']';
  if (!sample.errors.empty()) {
    json += ",\"error_feedback\":[";
    for (const ErrorSample &error : sample.errors) {
      json += &error == &sample.errors.front() ? "{\"state\":" : ",{\"state\":";
      appendJsonText(&json, error.state, /*isRepaired=*/true);
      add("norm", printForJson(error.norm));
      json += '}';
    }
    json += ']';
  }
  return json + '}';
}

/// Returns a label's value in quotes.
static std::string quote(const std::string &text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '\n') {
      result += "\\n";
      continue;
    }
    if (c == '"' || c == '\\')
      result += '\\';
    result += c;
  }
  return result + '"';
}

std::string trace::toPrometheus(int rank,
                                const std::map<int64_t, MetricsSample> &samples,
                                int context) {
  std::string text;
  // All values of a metric must be contiguous.
  auto addMetric = [&](const char *name, const char *type, const char *help,
                       const auto &addValues) {
    const std::string metric = std::string("ddphook_") + name;
    text += "# HELP " + metric + " " + help + "\n# TYPE " + metric + " " +
            type + "\n";
    for (const auto &[number, sample] : samples) {
      const std::string labels =
          "rank=\"" + std::to_string(rank) + "\",module=\"" +
          std::to_string(number) + "\"" +
          (context == 0 ? ""
                        : ",context=\"" + std::to_string(context + 1) + "\"");
      addValues(sample, [&](const std::string &more, const std::string &value) {
        text += metric + "{" + labels + more + "} " + value + "\n";
      });
    }
  };
  auto addCounter = [&](const char *name, const char *help,
                        const auto &valueOf) {
    addMetric(name, "counter", help,
              [&](const MetricsSample &sample, const auto &add) {
                add("", print(uint64_t(valueOf(sample))));
              });
  };
  auto addTimes = [&](const char *name, const char *help, const auto &timeOf) {
    addMetric(name, "counter", help,
              [&](const MetricsSample &sample, const auto &add) {
                for (const BucketSample &bucket : sample.buckets)
                  add(",bucket=" + quote(bucket.bucket),
                      print(static_cast<double>(timeOf(bucket)) * nanoseconds));
              });
  };
  addCounter("steps_total", "Steps that succeeded.",
             [](const MetricsSample &s) { return s.stats.steps; });
  addMetric("step_seconds_total", "counter", "Time in these steps.",
            [](const MetricsSample &sample, const auto &add) {
              add("",
                  print(static_cast<double>(sample.stepTime) * nanoseconds));
            });
  addCounter("collectives_total", "Collectives of these steps.",
             [](const MetricsSample &s) { return s.stats.collectives; });
  addCounter("wire_bytes_total", "Bytes contributed to collectives.",
             [](const MetricsSample &s) { return s.stats.wire_bytes; });
  addCounter("uncompressed_bytes_total",
             "Bytes that the same reductions would have contributed without a "
             "hook.",
             [](const MetricsSample &s) { return s.stats.uncompressed_bytes; });
  addMetric("compression_ratio", "gauge",
            "Uncompressed bytes divided by bytes on the wire.",
            [](const MetricsSample &sample, const auto &add) {
              add("", print(ratioOf(sample.stats)));
            });
  addCounter("non_finite_total", "Tests that found non-finite numbers.",
             [](const MetricsSample &s) { return s.nonFinite; });
  addTimes("waiting_seconds_total",
           "Time in collectives in which peers were waited for.",
           [](const BucketSample &b) { return b.waited; });
  addTimes("moving_seconds_total", "The rest of the time in collectives.",
           [](const BucketSample &b) { return b.total - b.waited; });
  auto haveSome = [&samples](const auto &hasIt) {
    return std::any_of(samples.begin(), samples.end(), [&](const auto &s) {
      return std::any_of(s.second.buckets.begin(), s.second.buckets.end(),
                         hasIt);
    });
  };
  if (haveSome([](const BucketSample &b) { return b.nonFinite.has_value(); }))
    addMetric("bucket_non_finite_total", "counter",
              "Reductions whose input on this rank was not finite.",
              [](const MetricsSample &sample, const auto &add) {
                for (const BucketSample &bucket : sample.buckets)
                  if (bucket.nonFinite)
                    add(",bucket=" + quote(bucket.bucket),
                        print(*bucket.nonFinite));
              });
  if (haveSome(
          [](const BucketSample &b) { return b.relativeError.has_value(); }))
    addMetric(
        "compression_relative_error", "gauge",
        "2-norm of this rank's compression error divided by that of its input.",
        [](const MetricsSample &sample, const auto &add) {
          for (const BucketSample &bucket : sample.buckets)
            if (bucket.relativeError)
              add(",bucket=" + quote(bucket.bucket),
                  printForPrometheus(*bucket.relativeError));
        });
  auto hasErrors = [](const auto &s) { return !s.second.errors.empty(); };
  if (std::any_of(samples.begin(), samples.end(), hasErrors))
    addMetric("error_feedback_norm", "gauge",
              "2-norm of the compression error that error feedback keeps.",
              [](const MetricsSample &sample, const auto &add) {
                for (const ErrorSample &error : sample.errors)
                  add(",state=" + quote(error.state),
                      printForPrometheus(error.norm));
              });
  return text;
}

void MetricsFile::open(std::string newPath, std::string newRunId, int newRank,
                       int newContext) {
  path = std::move(newPath);
  runId = std::move(newRunId);
  rank = newRank;
  context = newContext;
}

/// Appends a line completely or not at all; the first line of a run replaces
/// the file's contents.
static Status appendLine(const std::string &path, bool isFirst,
                         const std::string &line) {
  const NoWriteSignals noSignals;
  OpenFile file;
  DDPHOOK_TRY(file.open(path, O_WRONLY | O_CREAT | O_APPEND, NamedBy::Runtime));
  if (isFirst && ::ftruncate(file.descriptor(), 0) != 0)
    return systemError(errno, "cannot write '%s'", path.c_str());
  const ssize_t written = ::write(file.descriptor(), line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size()))
    return Status::ok();
  const int failed = written < 0 ? errno : ENOSPC;
  // Remove a line that a full disk has cut off: readers could not parse it.
  struct stat attributes;
  if (written > 0 && ::fstat(file.descriptor(), &attributes) == 0 &&
      ::ftruncate(file.descriptor(), attributes.st_size - written) != 0)
    log(LogLevel::Warn,
        "the last line of '" + path + "' is incomplete and stays that way");
  return systemError(failed, "cannot write '%s'", path.c_str());
}

Status MetricsFile::tryToWrite(const MetricsSample &sample) {
  const bool isFirst = !std::exchange(hasWritten, true);
  if (!isForPrometheus(path)) {
    const std::chrono::duration<double> time =
        std::chrono::system_clock::now().time_since_epoch();
    return appendLine(path, isFirst,
                      toJsonLine(runId, rank, time.count(), sample) + "\n");
  }
  samples[sample.module] = sample;
  const std::string text = toPrometheus(rank, samples, context);
  AtomicFile file(path);
  DDPHOOK_TRY(file.open());
  DDPHOOK_TRY(file.write(text.data(), text.size()));
  return file.commit(/*isDurable=*/false);
}

void MetricsFile::write(const MetricsSample &sample) {
  Status status = tryToWrite(sample);
  if (status.isOk())
    return;
  path.clear();
  log(LogLevel::Warn, "metrics of rank " + std::to_string(rank) +
                          " are no longer written: " + status.message());
}
