// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// This file repeats the names from where they are read, because a library
// cannot know which names will be read later.

#include "job/variables.h"

#include "base/log.h"
#include "base/status.h"
#include "base/suggestion.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <string_view>
#include <unistd.h>

using namespace ddphook;

static constexpr std::string_view prefix = "DDPHOOK_";
/// The prefix of the tests' variables.
static constexpr std::string_view testPrefix = "DDPHOOK_TEST_";

/// The names in docs/environment.md, without the prefix.
static constexpr std::string_view runtimeNames[] = {"BACKEND",
                                                    "BACKEND_OPTIONS",
                                                    "FLIGHT_RECORDER",
                                                    "JOB_SECRET",
                                                    "LOG",
                                                    "METRICS",
                                                    "METRICS_ERRORS",
                                                    "METRICS_INTERVAL",
                                                    "METRICS_NON_FINITE",
                                                    "NODE",
                                                    "NUM_THREADS",
                                                    "PORT",
                                                    "RUN_ID",
                                                    "SOCKET_IFNAME",
                                                    "TIMEOUT_S",
                                                    "TRACE",
                                                    "TRACE_EVENTS",
                                                    "TRANSPORT"};

/// Names that the Python package, tests and scripts read or a build may set.
static constexpr std::string_view otherNames[] = {
    "ALL_MUTANTS",  "BUILD_DIR",   "CACHE_DIR",    "CC",
    "CUDA_ROOT",    "EXEC",        "EXEC_MODULES", "FUZZ_SEEDS",
    "GPU_BUDGET_S", "LIBRARY_DIR", "LIT",          "NCCL_ROOT",
    "OPT",          "REQUIRE_GPU", "RT",           "RUN"};

std::vector<std::string>
ddphook::findUnknownVariables(const char *const *environment) {
  const std::vector<std::string_view> known(std::begin(runtimeNames),
                                            std::end(runtimeNames));
  std::vector<std::string> lines;
  for (; environment && *environment; ++environment) {
    const std::string_view entry = *environment;
    const size_t equals = entry.find('=');
    if (entry.substr(0, prefix.size()) != prefix ||
        entry.substr(0, testPrefix.size()) == testPrefix ||
        equals == std::string_view::npos || equals + 1 == entry.size())
      continue;
    const std::string_view name =
        entry.substr(prefix.size(), equals - prefix.size());
    if (std::find(known.begin(), known.end(), name) != known.end() ||
        std::find(std::begin(otherNames), std::end(otherNames), name) !=
            std::end(otherNames))
      continue;
    std::string line = "unknown environment variable ";
    line += entry.substr(0, equals);
    const std::string_view meant = suggestName(name, known);
    if (!meant.empty())
      line.append(", did you mean ").append(prefix).append(meant).append("?");
    lines.push_back(std::move(line));
  }
  return lines;
}

void ddphook::warnOfUnknownVariables() {
  static std::once_flag once;
  // Without memory pthread_once(), a function in C, ends the process when an
  // exception passes through it.
  std::call_once(once, [] {
    ignoreExceptions([] {
      for (const std::string &line : findUnknownVariables(environ))
        log(LogLevel::Warn, line);
    });
  });
}
