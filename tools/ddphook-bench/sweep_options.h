//===- sweep_options.h - command line of ddphook-bench sweep ----*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The options of `sweep`: short names are those of nccl-tests.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_BENCH_SWEEP_OPTIONS_H
#define DDPHOOK_BENCH_SWEEP_OPTIONS_H

#include "base/dtype.h"
#include "base/status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ddphook::bench {

/// A hook that is one all-reduce.
struct SweepHook {
  std::string name;
  /// The type on the wire; nothing: the gradient's own.
  std::optional<Dtype> wire;
};

struct SweepOptions {
  int64_t minBytes = 8, maxBytes = 64 << 20;
  /// From one size to the next: times `factor`, or plus `stepBytes` unless 0.
  int64_t factor = 2, stepBytes = 0;
  std::vector<Dtype> dtypes = {Dtype::F32};
  std::vector<SweepHook> hooks = {{"allreduce", std::nullopt}};
  /// Divide by the number of ranks before adding, as DDP does.
  bool isMean = false;
  /// A measurement is the time of `iterations` runs, after `warmup` others; it
  /// is repeated `rounds` times.
  int iterations = 20, warmup = 5, rounds = 3;
  bool checks = true;
  /// Ranks to start on this machine; nothing: 2, unless a launcher has started
  /// some.
  std::optional<int> ranks;
  /// Files for the results; empty: none.
  std::string csv, json, plot;
  bool wantsHelp = false;

  /// The sizes of buffers, ascending, from `minBytes` to `maxBytes`.
  std::vector<int64_t> sizes() const;
  /// What all ranks of a job must have alike, as a text.
  std::string fingerprint() const;
};

/// Parses what follows `sweep` on the command line.
Status parseSweepOptions(const std::vector<std::string> &arguments,
                         SweepOptions *options);

/// What --help prints.
const char *sweepHelp();

} // namespace ddphook::bench

#endif // DDPHOOK_BENCH_SWEEP_OPTIONS_H
