//===- observer.h - what becomes of what a rank records ---------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A context's recorder and the places where its events go: a part of a trace,
// which rank 0 merges, and the flight recorder's file. Nothing here fails a
// step: what cannot be written is one warning.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_TRACE_OBSERVER_H
#define DDPHOOK_RUNTIME_SRC_TRACE_OBSERVER_H

#include "trace/clock.h"
#include "trace/metrics.h"
#include "trace/observation.h"
#include "trace/recorder.h"

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace ddphook::trace {

/// Events of each thread that the flight recorder keeps.
constexpr uint64_t flightEvents = 1000;

class Observer {
public:
  Observer(const Observation &wanted, int rank, int worldSize)
      : wanted(wanted), rank(rank), worldSize(worldSize) {}

  Recorder &recorder() { return events; }
  const Recorder &recorder() const { return events; }

  /// Whether a module that has made so many steps is to be sampled.
  bool isSampled(uint64_t steps) const {
    return metrics.isOpen() &&
           steps % static_cast<uint64_t>(wanted.metricsInterval) == 0;
  }
  bool hasMetrics() const { return metrics.isOpen(); }
  /// Whether samples tell what compression loses, and what is kept of that.
  bool measuresErrors() const { return wanted.measuresErrors; }
  /// Whether reductions are to be tested for numbers that are not finite.
  bool findsNonFinite() const {
    return wanted.findsNonFinite && metrics.isOpen();
  }
  /// Writes what `sample` gives. Never throws.
  void write(const std::function<MetricsSample()> &sample);

  /// Whether this rank has a part of a trace.
  bool isTracing() const { return !path.empty(); }

  /// What the other ranks have to know of this one, as a text.
  std::string introduce();

  /// Begins to record. `introductions` are those of all ranks, `launchId` is
  /// what the launcher calls the job; `askTime` gives the time of rank 0.
  void begin(const std::vector<std::string> &introductions,
             const std::string &launchId,
             const std::function<Status(int64_t *)> &askTime);

  /// Keeps what was recorded until a failure of the job, the first one; from
  /// any thread. When it returns, that has been done, whoever has called it.
  void fail(const std::string &message);

  /// Ends the recording, with no collective under way. Other ranks may be told
  /// of it now.
  void close();

  /// When that is closed: what rank 0 has to be sent of it, because it cannot
  /// read this rank's directory; nothing where there is no need.
  std::string pack() const;
  /// Takes what became of that.
  void deliver(const Status &status);

  /// On rank 0: whether it cannot read the parts of all ranks where they are.
  bool lacksParts() const;

  /// On rank 0, when the other ranks have closed theirs or will not any more:
  /// merges the parts into the trace. `delivered` are those that were sent.
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
  /// Why the parts that are `present` cannot be merged.
  std::string whyThereIsNone(const std::vector<std::string> &present) const;

  const Observation wanted;
  const int rank, worldSize;
  Recorder events;
  MetricsFile metrics;
  std::string runId;
  /// Of the trace, absolute; empty: none is written.
  std::string path;
  /// Of this rank's flight recorder, absolute; empty: none is written.
  std::string flightFile;
  std::once_flag hasFailed;
  std::vector<std::string> parts; ///< Of all ranks.
  bool isOnMachineOfRankZero = true;
};

} // namespace ddphook::trace

#endif // DDPHOOK_RUNTIME_SRC_TRACE_OBSERVER_H
