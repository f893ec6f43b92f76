//===- observation.h - what is to be recorded -------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What users ask for by options and variables. docs/tracing.md lists them.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_TRACE_OBSERVATION_H
#define DDPHOOK_RUNTIME_SRC_TRACE_OBSERVATION_H

#include <string>

namespace ddphook::trace {

struct Observation {
  /// The trace's file; empty: none.
  std::string trace;
  /// Events of each thread that a trace keeps, the last ones.
  int traceEvents = 100000;
  /// Whether there is a flight recorder.
  bool isRecording = true;
  /// Pattern of its files; empty: it only explains errors.
  std::string flightRecorder;
  /// Pattern of the files with metrics; empty: none.
  std::string metrics;
  /// Steps of a module from one sample of its metrics to the next.
  int metricsInterval = 100;
  /// Whether samples have relative errors of compression and norms of what
  /// error feedback keeps, which take passes over gradients and states.
  bool measuresErrors = false;
  /// Whether the operands of all reductions are tested for numbers that are not
  /// finite, a pass over them in every step.
  bool findsNonFinite = false;
};

} // namespace ddphook::trace

#endif // DDPHOOK_RUNTIME_SRC_TRACE_OBSERVATION_H
