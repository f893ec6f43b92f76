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
  /// The type on the wire, unless it is the gradient's.
  std::optional<Dtype> wire;
};

struct SweepOptions {
  int64_t minBytes = 8, maxBytes = 64 << 20;
  /// The next size: times `factor`, or plus `stepBytes` unless that is 0.
  int64_t factor = 2, stepBytes = 0;
  std::vector<Dtype> dtypes = {Dtype::F32};
  std::vector<SweepHook> hooks = {{"allreduce", std::nullopt}};
  /// Divide by the number of ranks before adding, as DDP does.
  bool isMean = false;
  /// One measurement times `iterations` runs after `warmup` others; it is
  /// repeated `rounds` times.
  int iterations = 20, warmup = 5, rounds = 3;
  bool checks = true;
  /// Ranks to start on this machine; by default 2, unless a launcher has
  /// started some.
  std::optional<int> ranks;
  /// Files for the results; may be empty.
  std::string csv, json;
  bool wantsHelp = false;

  /// Returns the sizes of buffers, ascending, from `minBytes` to `maxBytes`.
  std::vector<int64_t> sizes() const;
  /// Returns a text of the options that all ranks must agree on.
  std::string fingerprint() const;
};

/// Parses the arguments after `sweep` on the command line.
Status parseSweepOptions(const std::vector<std::string> &arguments,
                         SweepOptions *options);

/// The text of --help.
const char *sweepHelp();

} // namespace ddphook::bench

#endif // DDPHOOK_BENCH_SWEEP_OPTIONS_H
