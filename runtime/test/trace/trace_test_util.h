// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Directories that vanish, ranks that are made up, and traces as they are read
// by somebody else's parser.

#pragma once

#include "base/status_test_util.h"
#include "trace/merge.h"
#include "trace/rank_recording_file.h"
#include "trace/recorder.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <signal.h>
#include <thread>
#include <unistd.h>

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

/// Waits until the file of a part has come so far; false after five minutes.
inline bool
waitForPart(const std::string &path,
            const std::function<bool(const trace::PartContents &)> &isThere) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(5);
  while (std::chrono::steady_clock::now() < end) {
    trace::PartContents contents;
    if (readPartFile(path, NamedBy::User, &contents).isOk() &&
        isThere(contents))
      return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

/// Kills this process when the file of its part has so many steps that have
/// ended.
inline void killAfterSteps(const std::string &path, int steps) {
  waitForPart(path, [&](const trace::PartContents &contents) {
    int ended = 0;
    for (const trace::Event &event : contents.threads[0].events)
      ended += contents.names[event.name].category == trace::Category::Step;
    return ended >= steps;
  });
  ::kill(::getpid(), SIGKILL);
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
