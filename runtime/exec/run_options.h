// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The flags that both tools have, and the checks of them that need no module.
// Each tool handles its other flags.

#pragma once

#include "base/status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddphook {

/// More processes than this on one machine are assumed to be a mistake.
constexpr int32_t maxLocalRanks = 1024;

enum class ProgressMode { Auto, On, Off };

struct RunOptions {
  std::string entry;
  /// If unset, 1 or the size of the launched job.
  std::optional<int32_t> ranks;
  /// The file of a trace; if empty, from the environment, or none.
  std::string trace;
  /// A backend's name; if empty, from the environment, or "host".
  std::string device;
  int64_t steps = 1;
  /// A pattern of file names; empty if not given.
  std::string inputs;
  /// `--inputs=random:SEED`; `inputs` is then empty.
  std::optional<uint64_t> randomSeed;
  /// A pattern of file names; if empty, results are not written.
  std::string outputs;
  /// True if outputs that exceed the free space are an error.
  bool checksFreeSpace = true;
  /// Auto shows progress on a terminal.
  ProgressMode progress = ProgressMode::Auto;
  /// True if a successful run should print nothing.
  bool isQuiet = false;
  /// Patterns of the files from which states are loaded before the first step
  /// and to which they are saved after the last; empty if not given.
  std::string stateIn;
  std::string stateOut;
  /// `--state-in=strict:PATTERN` and `--state-in=partial:PATTERN`.
  bool isStateStrict = false;
  bool isStatePartial = false;
};

/// Usage lines of the shared flags, for the tools' --help.
extern const char *const runOptionsHelp;

/// Returns INVALID_ARGUMENT for `argument`, a flag that neither
/// parseRunOptions() nor the tool, which has `others`, knows; suggests a
/// similar flag.
Status unknownFlag(const std::string &argument,
                   const std::vector<std::string_view> &others = {});

/// Removes the shared flags, `--flag=value` or `--flag value`, from `arguments`
/// and appends everything else to `rest` in order. INVALID_ARGUMENT if a flag
/// has no value or a bad one, or is given twice, and if --entry is missing.
Status parseRunOptions(const std::vector<std::string> &arguments,
                       RunOptions &options, std::vector<std::string> &rest);

/// Returns the backend that `options` and the environment choose.
std::string chooseDevice(const RunOptions &options);

/// Refuses patterns with which one of `worldSize` ranks would, in one of the
/// steps, overwrite a file that another has written or that the run reads.
Status checkPatterns(const RunOptions &options, int32_t worldSize);

} // namespace ddphook
