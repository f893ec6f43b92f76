// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A context's recorder and the destinations of its events: a part of a trace,
// which rank 0 merges, and the flight recorder's file. Nothing here fails a
// step: if something cannot be written, there is one warning.

#pragma once

#include "trace/clock.h"
#include "trace/metrics.h"
#include "trace/recorder.h"
#include "trace/recording_options.h"

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace ddphook::trace {

/// The number of last events of each thread that the flight recorder keeps.
constexpr uint64_t flightEvents = 1000;

class Observer {
public:
  Observer(const RecordingOptions &wanted, int rank, int worldSize)
      : wanted(wanted), rank(rank), worldSize(worldSize),
        self("rank " + std::to_string(rank)) {}

  Recorder &recorder() { return events; }
  const Recorder &recorder() const { return events; }

  /// True if a module should be sampled after `steps` steps.
  bool isSampled(uint64_t steps) const {
    return metrics.isOpen() &&
           steps % static_cast<uint64_t>(wanted.metricsInterval) == 0;
  }
  bool hasMetrics() const { return metrics.isOpen(); }
  /// True if samples include compression losses and residuals.
  bool measuresErrors() const { return wanted.measuresErrors; }
  /// True if reductions should be tested for numbers that are not finite.
  bool findsNonFinite() const {
    return wanted.findsNonFinite && metrics.isOpen();
  }
  /// Writes the result of `sample`. Never throws.
  void write(const std::function<MetricsSample()> &sample);

  /// True if this rank has a part of a trace.
  bool isTracing() const { return !path.empty(); }

  /// Returns the data that the other ranks need of this one, as a text.
  std::string introduce();

  /// Starts to record. `introductions` are those of all ranks, `launchId` is
  /// the launcher's name for the job; `askTime` returns the time of rank 0.
  void begin(const std::vector<std::string> &introductions,
             const std::string &launchId,
             const std::function<Status(int64_t *)> &askTime);

  /// Saves the recording up to the job's first failure; any thread may call it.
  /// When it returns, that has been done, whichever thread called first.
  void fail(const std::string &message);

  /// Ends the recording; no collective may be in flight. Other ranks may then
  /// be notified.
  void close();

  /// After close(): returns the data to send to rank 0, because it cannot read
  /// this rank's directory; empty if that is not necessary.
  std::string pack() const;
  /// Handles the outcome of sending that.
  void deliver(const Status &status);

  /// On rank 0: true if it cannot read the parts of all ranks in their files.
  bool lacksParts() const;

  /// On rank 0, once the other ranks have closed their parts or never will:
  /// merges the parts into the trace. `delivered` are the parts that were sent.
  void merge(const std::map<int, std::string> &delivered);

private:
  struct Introduction {
    std::string clock, token, host, part;
  };
  void keep(const std::string &message);
  bool isRecording() const {
    return wanted.isRecording || !path.empty() || !wanted.metrics.empty();
  }
  static Introduction parse(const std::string &text);
  void openPart(const PartIdentity &identity);
  /// Returns why the parts that are `present` cannot be merged.
  std::string whyThereIsNone(const std::vector<std::string> &present) const;

  const RecordingOptions wanted;
  const int rank, worldSize;
  const std::string self; ///< "rank 3", for messages.
  Recorder events;
  MetricsFile metrics;
  std::string runId;
  /// The absolute path of the trace; empty if none is written.
  std::string path;
  /// The absolute path of this rank's flight recorder; empty if there is none.
  std::string flightFile;
  std::once_flag hasFailed;
  std::vector<std::string> parts; ///< Files of all ranks' parts.
  bool isOnMachineOfRankZero = true;
};

} // namespace ddphook::trace
