//===- trace_test_util.h - recorders and traces in tests --------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Directories that vanish, ranks that are made up, and traces as they are read
// by somebody else's parser.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_TEST_TRACE_TRACE_TEST_UTIL_H
#define DDPHOOK_RUNTIME_TEST_TRACE_TRACE_TEST_UTIL_H

#include "base/status_test_util.h"
#include "trace/merge.h"
#include "trace/recorder.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>

namespace ddphook::test {

class TemporaryDirectory {
public:
  TemporaryDirectory() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "ddphook-trace-XXXXXX")
            .string();
    path = ::mkdtemp(pattern.data());
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path); }
  TemporaryDirectory(const TemporaryDirectory &) = delete;
  TemporaryDirectory &operator=(const TemporaryDirectory &) = delete;

  std::string file(const std::string &name) const { return path + "/" + name; }

  std::string path;
};

inline trace::PartIdentity identity(int rank, int worldSize,
                                    const std::string &runId = "run") {
  trace::PartIdentity result;
  result.runId = runId;
  result.rank = rank;
  result.worldSize = worldSize;
  // Of no process.
  result.process = -1;
  result.host = "host";
  return result;
}

inline nlohmann::json readJson(const std::string &path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

/// The events of a trace with that phase, of one rank if one is given.
inline std::vector<nlohmann::json>
eventsOf(const nlohmann::json &trace, const std::string &phase, int rank = -1) {
  std::vector<nlohmann::json> result;
  for (const nlohmann::json &event : trace["traceEvents"])
    if (event["ph"] == phase && (rank < 0 || event["pid"] == rank))
      result.push_back(event);
  return result;
}

} // namespace ddphook::test

#endif // DDPHOOK_RUNTIME_TEST_TRACE_TRACE_TEST_UTIL_H
