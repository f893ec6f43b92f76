//===- processors.h - which processors a rank may use -----------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How many threads a rank computes with when nobody says so: its share of the
// processors that launchers, cpusets and quotas leave to it. Nothing here binds
// a thread to a processor; threads inherit what their rank was given.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_JOB_PROCESSORS_H
#define DDPHOOK_RUNTIME_SRC_JOB_PROCESSORS_H

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ddphook {

/// What a rank tells the others of its machine.
struct ProcessorSet {
  /// Numbers of the processors that its calling thread may run on, ascending.
  std::vector<int> processors;

  /// As the kernel writes lists: "0-3,8".
  std::string toText() const;
  /// Nothing when the text is malformed.
  static std::optional<ProcessorSet> parse(const std::string &text);
};

/// The calling thread's; empty when the system does not tell.
ProcessorSet ownProcessors();

/// Gives the content of a file, or nothing.
using FileReader =
    std::function<std::optional<std::string>(const std::string &path)>;
std::optional<std::string> readSmallFile(const std::string &path);

/// How many processors' time the control groups of this process may use;
/// nothing without a limit.
std::optional<double> processorQuota(const FileReader &read);

/// This rank's share, at least 1. A processor that several of the machine's
/// ranks may use counts for each of them in equal parts, so ranks that are
/// bound to processors of their own have all of these. `ranks` are the sets of
/// all ranks of the machine, `mine` is one of them.
int threadShare(const std::vector<ProcessorSet> &ranks, size_t mine,
                std::optional<double> quota);

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_JOB_PROCESSORS_H
