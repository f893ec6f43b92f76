//===- run_options.h - the flags of ddphook-exec and ddphook-run *- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The flags that both tools share, and what can be checked about them without
// the module. Flags that only one tool has are that tool's own business.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_EXEC_RUN_OPTIONS_H
#define DDPHOOK_RUNTIME_EXEC_RUN_OPTIONS_H

#include "base/status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddphook {

/// More processes than this on one machine are taken for a mistake.
constexpr int32_t maxLocalRanks = 1024;

enum class ProgressMode { Auto, On, Off };

struct RunOptions {
  std::string entry;
  /// Not given: 1, or the size of the job that is joined.
  std::optional<int32_t> ranks;
  /// The file of a trace; empty: from the environment, else none.
  std::string trace;
  /// A backend's name; empty: from the environment, else "host".
  std::string device;
  int64_t steps = 1;
  /// A pattern of file names; empty when not given.
  std::string inputs;
  /// `--inputs=random:SEED`; `inputs` is then empty.
  std::optional<uint64_t> randomSeed;
  /// A pattern of file names; empty: results are not written.
  std::string outputs;
  /// Whether outputs that are larger than the free space are an error.
  bool checksFreeSpace = true;
  /// Auto: on a terminal.
  ProgressMode progress = ProgressMode::Auto;
  /// Whether nothing is to be said about a run that goes well.
  bool isQuiet = false;
  /// Patterns of the files that states are loaded from before the first step
  /// and saved to after the last; empty when not given.
  std::string stateIn;
  std::string stateOut;
  /// `--state-in=strict:PATTERN` and `--state-in=partial:PATTERN`.
  bool isStateStrict = false;
  bool isStatePartial = false;
};

/// Usage lines of the shared flags, for the tools' --help.
extern const char *const runOptionsHelp;

/// INVALID_ARGUMENT for `argument`, a flag that neither parseRunOptions() nor
/// the tool, which has `others`, knows; with the flag that may have been meant.
Status unknownFlag(const std::string &argument,
                   const std::vector<std::string_view> &others = {});

/// Takes the shared flags, `--flag=value` or `--flag value`, out of
/// `arguments`; everything else goes to `rest` in its order. INVALID_ARGUMENT
/// for a flag that has no value, a bad one, or is given twice, and when --entry
/// is missing.
Status parseRunOptions(const std::vector<std::string> &arguments,
                       RunOptions &options, std::vector<std::string> &rest);

/// The backend that `options` and the environment choose.
std::string chooseDevice(const RunOptions &options);

/// Refuses patterns by which one of `worldSize` ranks would, in one of the
/// steps, overwrite what another has written or what the run reads.
Status checkPatterns(const RunOptions &options, int32_t worldSize);

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_EXEC_RUN_OPTIONS_H
