// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks as processes with the variables for traces and metrics, in a directory
// that vanishes, and what they have written there.

#pragma once

#include "job/job_test_ranks.h"
#include "trace/trace_test_util.h"

#include <algorithm>
#include <cstdlib>
#include <map>

namespace ddphook::test {

/// A job of `ranks` ranks that sets variables in them.
class Observed {
public:
  Observed() { variables["DDPHOOK_TRACE"] = directory.file("trace.json"); }

  using Body = std::function<std::string(int rank, TestModule &module,
                                         ddphook_context_t *context)>;

  std::vector<RankResult> run(int ranks, const Collectives &collectives,
                              const Body &body, int stoppedRank = -1,
                              double timeout = patientDeadline) {
    const int port = freePort();
    return runRanks(
        ranks,
        [&](int rank) {
          for (const auto &[name, value] : variables)
            ::setenv(name.c_str(), value.c_str(), 1);
          if (isApart)
            std::filesystem::current_path(directory.file(std::to_string(rank)));
          if (prepare)
            prepare();
          TestModule module(collectives);
          return withModule(jobOptions(rank, ranks, port, transport, timeout),
                            module, [&](ddphook_context_t *context) {
                              return body(rank, module, context);
                            });
        },
        patientDeadline + 100, stoppedRank);
  }

  nlohmann::json trace() const {
    return readJson(directory.file("trace.json"));
  }

  /// Files that a job has left, but for the trace.
  std::vector<std::string> otherFiles() const {
    std::vector<std::string> names;
    for (const auto &entry :
         std::filesystem::directory_iterator(directory.path))
      if (entry.path().filename() != "trace.json")
        names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  /// The lines of metrics that a rank has written, with DDPHOOK_METRICS as
  /// measure() sets it.
  std::vector<nlohmann::json> metrics(int rank) const {
    std::ifstream file(directory.file("m." + std::to_string(rank)));
    std::vector<nlohmann::json> lines;
    for (std::string line; std::getline(file, line);)
      lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
  void measure(int interval) {
    variables["DDPHOOK_METRICS"] = directory.file("m.{rank}");
    variables["DDPHOOK_METRICS_INTERVAL"] = std::to_string(interval);
  }

  TemporaryDirectory directory;
  std::map<std::string, std::string> variables;
  const char *transport = "shm";
  /// What each rank does before it joins.
  std::function<void()> prepare;
  /// Ranks run in directories that have their numbers.
  bool isApart = false;
};

/// So many steps; "OK" or the first failure.
inline std::string steps(TestModule &module, int count) {
  std::vector<float> data(1000, 1.0f);
  for (int i = 0; i < count; ++i)
    if (std::string result = step(module, data); result != "OK")
      return result;
  return "OK";
}

} // namespace ddphook::test
