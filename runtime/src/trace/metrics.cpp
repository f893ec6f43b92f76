// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "trace/metrics.h"

#include "base/log.h"
#include "base/write_signals.h"
#include "files/atomic_file.h"
#include "files/json.h"
#include "files/open_file.h"

#include <cerrno>
#include <chrono>
#include <cmath>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

using namespace ddphook;
using namespace ddphook::trace;

static double toSeconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

bool trace::isForPrometheus(std::string_view path) {
  return path.size() >= prometheusSuffix.size() &&
         path.substr(path.size() - prometheusSuffix.size()) == prometheusSuffix;
}

/// Prints a finite number so that both formats can read it.
static std::string print(double number) { return formatText("%.9g", number); }
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
  std::string json = formatText("{\"time\":%.3f,\"run_id\":", time);
  appendJsonText(&json, runId, /*isRepaired=*/true);
  auto add = [&json](const char *key, const std::string &number) {
    (((json += ",\"") += key) += "\":") += number;
  };
  add("rank", std::to_string(rank));
  add("module", std::to_string(sample.module));
  add("steps", print(stats.steps));
  add("step_seconds", print(toSeconds(sample.stepTime)));
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
    add("waiting_seconds", print(toSeconds(bucket.waited)));
    add("moving_seconds", print(toSeconds(bucket.total - bucket.waited)));
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
  // All values of a metric must be contiguous; one without values is left out.
  auto addMetric = [&](const char *name, const char *type, const char *help,
                       bool isOptional, const auto &addValues) {
    const std::string metric = std::string("ddphook_") + name;
    std::string values;
    for (const auto &[number, sample] : samples) {
      const std::string labels =
          concat("rank=\"", rank, "\",module=\"", number, "\"",
                 context == 0 ? "" : concat(",context=\"", context + 1, "\""));
      addValues(sample, [&](const std::string &more, const std::string &value) {
        values += metric + "{" + labels + more + "} " + value + "\n";
      });
    }
    if (!values.empty() || !isOptional)
      text += "# HELP " + metric + " " + help + "\n# TYPE " + metric + " " +
              type + "\n" + values;
  };
  auto addOfModules = [&](const char *name, const char *type, const char *help,
                          const auto &valueOf) {
    addMetric(name, type, help, /*isOptional=*/false,
              [&](const MetricsSample &sample, const auto &add) {
                add("", print(valueOf(sample)));
              });
  };
  // A bucket without the value has an empty text.
  auto addOfBuckets = [&](const char *name, const char *type, const char *help,
                          bool isOptional, const auto &textOf) {
    addMetric(name, type, help, isOptional,
              [&](const MetricsSample &sample, const auto &add) {
                for (const BucketSample &bucket : sample.buckets)
                  if (const std::string value = textOf(bucket); !value.empty())
                    add(",bucket=" + quote(bucket.bucket), value);
              });
  };
  using Sample = MetricsSample;
  using Bucket = BucketSample;
  addOfModules("steps_total", "counter", "Steps that succeeded.",
               [](const Sample &s) { return s.stats.steps; });
  addOfModules("step_seconds_total", "counter", "Time in these steps.",
               [](const Sample &s) { return toSeconds(s.stepTime); });
  addOfModules("collectives_total", "counter", "Collectives of these steps.",
               [](const Sample &s) { return s.stats.collectives; });
  addOfModules("wire_bytes_total", "counter",
               "Bytes contributed to collectives.",
               [](const Sample &s) { return s.stats.wire_bytes; });
  addOfModules("uncompressed_bytes_total", "counter",
               "Bytes that the same reductions would have contributed without "
               "a hook.",
               [](const Sample &s) { return s.stats.uncompressed_bytes; });
  addOfModules("compression_ratio", "gauge",
               "Uncompressed bytes divided by bytes on the wire.",
               [](const Sample &s) { return ratioOf(s.stats); });
  addOfModules("non_finite_total", "counter",
               "Tests that found non-finite numbers.",
               [](const Sample &s) { return s.nonFinite; });
  addOfBuckets("waiting_seconds_total", "counter",
               "Time in collectives in which peers were waited for.",
               /*isOptional=*/false,
               [](const Bucket &b) { return print(toSeconds(b.waited)); });
  addOfBuckets(
      "moving_seconds_total", "counter", "The rest of the time in collectives.",
      /*isOptional=*/false,
      [](const Bucket &b) { return print(toSeconds(b.total - b.waited)); });
  addOfBuckets("bucket_non_finite_total", "counter",
               "Reductions whose input on this rank was not finite.",
               /*isOptional=*/true, [](const Bucket &b) {
                 return b.nonFinite ? print(*b.nonFinite) : "";
               });
  addOfBuckets(
      "compression_relative_error", "gauge",
      "2-norm of this rank's compression error divided by that of its input.",
      /*isOptional=*/true, [](const Bucket &b) {
        return b.relativeError ? printForPrometheus(*b.relativeError) : "";
      });
  addMetric("error_feedback_norm", "gauge",
            "2-norm of the compression error that error feedback keeps.",
            /*isOptional=*/true, [](const Sample &sample, const auto &add) {
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

/// Appends a whole line or none; a run's first line replaces the contents.
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
  log(LogLevel::Warn, concat("metrics of rank ", rank,
                             " are no longer written: ", status.message()));
}
