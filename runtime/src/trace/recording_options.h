// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What users request by options and variables. docs/environment.md lists these.

#pragma once

#include <string>

namespace ddphook::trace {

struct RecordingOptions {
  /// The trace's file; empty for none.
  std::string trace;
  /// The number of last events of each thread that a trace keeps.
  int traceEvents = 100000;
  /// True if there is a flight recorder.
  bool isRecording = true;
  /// Pattern of its files; if empty, it only explains errors.
  std::string flightRecorder;
  /// Pattern of the files with metrics; empty for none.
  std::string metrics;
  /// Steps of a module between two samples of its metrics.
  int metricsInterval = 100;
  /// True if samples include relative errors of compression and norms of error
  /// feedback residuals, which take passes over gradients and states.
  bool measuresErrors = false;
  /// True if the operands of all reductions are tested for numbers that are not
  /// finite, which takes a pass over them in every step.
  bool findsNonFinite = false;
};

} // namespace ddphook::trace
