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
  /// Names of the subcommands to run, in order; all but `device`, when none was
  /// given.
  std::vector<std::string> commands;
  /// Size of the f32 bucket.
  double mib = 25;
  /// Measurements of ours and of PyTorch alternate this often.
  int rounds = 3;
  /// Threads that `powersgd` computes with, on both sides.
  int threads = 1;
  /// Sizes of the groups that `allreduce` measures.
  std::vector<int> ranks = {2, 4};
  /// Interpreter that has PyTorch; empty: no baseline.
  std::string python;
  /// Backend that `device` measures.
  std::string device = "cuda";
  /// File for the results as JSON; empty: none.
  std::string json;

  int64_t elements() const { return static_cast<int64_t>(mib * (1 << 18)); }
};

/// Parses the command line; `known` are the names of the subcommands.
/// `helpWanted` and `versionWanted` are set by --help and --version.
Status parseOptions(int argc, char **argv,
                    const std::vector<std::string> &known, Options *options,
                    bool *helpWanted, bool *versionWanted);

/// ", did you mean NAME?" with a prefix to the name, or nothing: the one of
/// `known` that resembles `name` most.
std::string didYouMean(std::string_view name,
                       const std::vector<std::string_view> &known,
                       const std::string &prefix = "");

/// What --help prints about the options.
const char *optionsHelp();

} // namespace ddphook::bench

#endif // DDPHOOK_BENCH_OPTIONS_H
