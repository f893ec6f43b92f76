// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes a module's counters at a fixed interval of steps, for other programs
// to read: each time a line of JSON, or a text file for Prometheus that is
// replaced. docs/tracing.md lists the values.

#pragma once

#include "base/status.h"
#include "ddphook/runtime/runtime.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddphook::trace {

/// Sums over all collectives of a bucket, since the module was loaded.
struct BucketSample {
  std::string bucket;
  int64_t collectives = 0;
  /// Nanoseconds in the collectives, and the part spent waiting for peers.
  int64_t total = 0, waited = 0;
  /// ‖loss of this rank's compression‖ / ‖compressed elements‖, if measured.
  std::optional<double> relativeError;
  /// Reductions with an operand that was not finite, if tested.
  std::optional<uint64_t> nonFinite;
};

/// The error that a hook keeps of its compression.
struct ErrorSample {
  std::string state; ///< Name in the plan.
  double norm = 0;   ///< 2-norm of this rank's part.
};

struct MetricsSample {
  /// The module's number in the job.
  int64_t module = 0;
  ddphook_stats_t stats = {};
  /// Nanoseconds spent in these steps.
  int64_t stepTime = 0;
  /// The number of tests that found non-finite numbers.
  uint64_t nonFinite = 0;
  std::vector<BucketSample> buckets;
  /// Empty unless requested.
  std::vector<ErrorSample> errors;
};

/// The extension of files for Prometheus.
constexpr std::string_view prometheusSuffix = ".prom";
bool isForPrometheus(std::string_view path);

/// Returns the line of JSON, without its end; `time` in seconds since 1970.
std::string toJsonLine(const std::string &runId, int rank, double time,
                       const MetricsSample &sample);

/// Returns the text for Prometheus, for all modules of a rank. After the first
/// context of a process, number 0, values are labelled with the context's
/// number, from 1 on: two files must not have the same values for one reader.
std::string toPrometheus(int rank,
                         const std::map<int64_t, MetricsSample> &samples,
                         int context = 0);

/// The file of one rank. A failure to write causes one warning, and no further
/// attempts.
class MetricsFile {
public:
  /// Opens the file. With an empty `path` nothing is written; ".prom" at its
  /// end means Prometheus. `newContext` contexts of the process came before.
  void open(std::string newPath, std::string newRunId, int newRank,
            int newContext = 0);
  bool isOpen() const { return !path.empty(); }
  void write(const MetricsSample &sample);

private:
  Status tryToWrite(const MetricsSample &sample);

  std::string path, runId;
  int rank = 0, context = 0;
  bool hasWritten = false;
  std::map<int64_t, MetricsSample> samples; ///< Last sample of each module.
};

} // namespace ddphook::trace
