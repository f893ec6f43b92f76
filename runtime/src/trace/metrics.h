//===- metrics.h - counters and times of modules, as files ------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes what a module has counted every so many steps, for other programs to
// read: a line of JSON each time, or a text file for Prometheus that is
// replaced. docs/tracing.md lists the values.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_TRACE_METRICS_H
#define DDPHOOK_RUNTIME_SRC_TRACE_METRICS_H

#include "base/status.h"
#include "ddphook/runtime/runtime.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddphook::trace {

/// Of all collectives of a bucket, since the module was loaded.
struct BucketSample {
  std::string bucket;
  int64_t collectives = 0;
  /// Nanoseconds in them, and those of it in which peers were waited for.
  int64_t total = 0, waited = 0;
  /// ‖what this rank's compression lost‖ / ‖what it compressed‖, where that was
  /// measured.
  std::optional<double> relativeError;
  /// Reductions with an operand that was not finite, where they were tested.
  std::optional<uint64_t> nonFinite;
};

/// What a hook keeps of what its compression has lost.
struct ErrorSample {
  std::string state; ///< Its name in the plan.
  double norm = 0;   ///< The 2-norm of this rank's part.
};

/// What a module has counted.
struct MetricsSample {
  /// The module's number in the job.
  int64_t module = 0;
  ddphook_stats_t stats = {};
  /// Nanoseconds in these steps.
  int64_t stepTime = 0;
  /// Tests for non-finite numbers that found some.
  uint64_t nonFinite = 0;
  std::vector<BucketSample> buckets;
  /// Empty unless they were asked for.
  std::vector<ErrorSample> errors;
};

/// How the names of files for Prometheus end.
constexpr std::string_view prometheusSuffix = ".prom";
bool isForPrometheus(std::string_view path);

/// The line of JSON, without its end; `time` in seconds since 1970.
std::string toJsonLine(const std::string &runId, int rank, double time,
                       const MetricsSample &sample);

/// The text for Prometheus, of all modules of a rank. After the first context
/// of a process, number 0, values have a label with the context's number from
/// 1: two files may not have the same values for one reader.
std::string toPrometheus(int rank,
                         const std::map<int64_t, MetricsSample> &samples,
                         int context = 0);

/// The file of one rank. A failure to write is one warning, and the last
/// attempt.
class MetricsFile {
public:
  /// With an empty `path` nothing is written; one that ends with ".prom" is for
  /// Prometheus. `newContext` contexts of the process came before.
  void open(std::string newPath, std::string newRunId, int newRank,
            int newContext = 0);
  bool isOpen() const { return !path.empty(); }
  void write(const MetricsSample &sample);

private:
  Status tryToWrite(const MetricsSample &sample);

  std::string path, runId;
  int rank = 0, context = 0;
  bool hasWritten = false;
  std::map<int64_t, MetricsSample> samples; ///< The last of each module.
};

} // namespace ddphook::trace

#endif // DDPHOOK_RUNTIME_SRC_TRACE_METRICS_H
