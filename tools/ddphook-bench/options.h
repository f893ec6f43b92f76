//===- options.h - command line of ddphook-bench ----------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The options of the command line.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_BENCH_OPTIONS_H
#define DDPHOOK_BENCH_OPTIONS_H

#include "base/status.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddphook::bench {

struct Options {
  /// Names of the subcommands to run, in order; by default all but `device`.
  std::vector<std::string> commands;
  /// Size of the f32 bucket.
  double mib = 25;
  /// The number of alternations between our measurements and PyTorch's.
  int rounds = 3;
  /// Threads of `powersgd`, on both sides.
  int threads = 1;
  /// Sizes of the groups that `allreduce` measures.
  std::vector<int> ranks = {2, 4};
  /// An interpreter that has PyTorch; empty for no baseline.
  std::string python;
  /// Backend that `device` measures.
  std::string device = "cuda";
  /// File for the results as JSON; may be empty.
  std::string json;

  int64_t elements() const { return static_cast<int64_t>(mib * (1 << 18)); }
};

/// Parses the command line; `known` are the names of the subcommands. --help
/// and --version set `helpWanted` and `versionWanted`.
Status parseOptions(int argc, char **argv,
                    const std::vector<std::string> &known, Options *options,
                    bool *helpWanted, bool *versionWanted);

/// Returns ", did you mean NAME?" for the closest of `known`, with a prefix to
/// the name, or an empty text.
std::string didYouMean(std::string_view name,
                       const std::vector<std::string_view> &known,
                       const std::string &prefix = "");

/// The description of the options for --help.
const char *optionsHelp();

} // namespace ddphook::bench

#endif // DDPHOOK_BENCH_OPTIONS_H
