// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The default number of threads that a rank computes with: its share of the
// processors that launchers, cpusets and quotas leave to it. Nothing here binds
// a thread to a processor; threads inherit their rank's affinity.

#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ddphook {

/// The processors of a rank, which it sends to the others.
struct ProcessorSet {
  /// The processors on which its calling thread may run, ascending.
  std::vector<int> processors;

  /// Returns the list as the kernel writes it: "0-3,8".
  std::string toText() const;
  /// Returns nullopt if the text is malformed.
  static std::optional<ProcessorSet> parse(const std::string &text);
};

/// Returns the calling thread's processors; empty if the system does not say.
ProcessorSet ownProcessors();

/// Returns the content of a file, or nullopt.
using FileReader =
    std::function<std::optional<std::string>(const std::string &path)>;
std::optional<std::string> readSmallFile(const std::string &path);

/// Returns how many processors control groups grant this process, if limited.
std::optional<double> processorQuota(const FileReader &read);

/// Returns this rank's share, at least 1. Ranks that may use the same processor
/// share it equally, so a rank bound to its own processors has all of them.
/// `ranks` are the sets of all ranks of the machine, and `mine` is the index of
/// this rank's.
int threadShare(const std::vector<ProcessorSet> &ranks, size_t mine,
                std::optional<double> quota);

} // namespace ddphook
